"""One leader: taken, renewed, lost, released; and no clock but one's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from speccli.core.fallback.lease import Lease, Times, identity
from speccli.core.kube.client import Cluster
from tests.support.api_server import ApiServer, status
from tests.support.kept_objects import Kept

Connect = Callable[[], Cluster]
AWAY = status(503, "ServiceUnavailable", "the server is away")


class Clock:
    """Two clocks of one machine: one that nobody sets, one that lies as it is told."""

    def __init__(self, unix: float = 1_795_953_600.0) -> None:
        self.steady = 1000.0
        self.unix = unix

    def pass_(self, seconds: float) -> None:
        self.steady += seconds
        self.unix += seconds


def lease(connect: Connect, who: str, clock: Clock) -> Lease:
    return Lease(
        connect,
        "prod",
        "chat-fallback",
        who,
        steady=lambda: clock.steady,
        clock=lambda: clock.unix,
    )


def spec(kept: Kept) -> dict[str, Any]:
    value: dict[str, Any] = kept.objects["leases", "chat-fallback"]["spec"]
    return value


def test_the_first_takes_it_and_the_second_waits(connect: Connect, kept: Kept) -> None:
    clock = Clock()
    a, b = lease(connect, "a", clock), lease(connect, "b", clock)
    assert a.try_once()
    assert not b.try_once()
    assert (b.holder, b.trouble) == ("a", None)
    assert spec(kept) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-29T12:00:00.000000Z",
        "renewTime": "2026-11-29T12:00:00.000000Z",
        "leaseTransitions": 0,
    }


def test_renewing_keeps_the_time_of_the_taking(connect: Connect, kept: Kept) -> None:
    clock = Clock()
    a = lease(connect, "a", clock)
    a.try_once()
    clock.pass_(2)
    assert a.try_once()
    assert spec(kept)["acquireTime"] == "2026-11-29T12:00:00.000000Z"
    assert spec(kept)["renewTime"] == "2026-11-29T12:00:02.000000Z"


def test_renewing_is_one_call(connect: Connect, api: ApiServer) -> None:
    clock = Clock()
    a = lease(connect, "a", clock)
    a.try_once()
    before = len(api.asked)
    clock.pass_(2)
    a.try_once()
    assert [each.method for each in api.asked[before:]] == ["PUT"]


def test_another_takes_over_once_nothing_has_changed_for_its_duration(
    connect: Connect, kept: Kept
) -> None:
    clock = Clock()
    a, b = lease(connect, "a", clock), lease(connect, "b", clock)
    a.try_once()
    b.try_once()
    clock.pass_(14.9)
    assert not b.try_once()
    clock.pass_(0.1)
    assert b.try_once()
    assert (spec(kept)["holderIdentity"], spec(kept)["leaseTransitions"]) == ("b", 1)
    assert not a.try_once()


def test_the_leader_has_given_up_before_another_may_take_over(connect: Connect, kept: Kept) -> None:
    clock = Clock()
    a, b = lease(connect, "a", clock), lease(connect, "b", clock)
    a.try_once()
    b.try_once()
    kept.away = AWAY
    clock.pass_(9.9)
    assert a.try_once()  # it holds what it has
    clock.pass_(0.1)
    assert not a.leads
    kept.away = None
    assert not b.try_once()  # for five seconds there is none


@pytest.mark.parametrize("wrong_s", [-86400.0, 86400.0])
def test_clocks_of_other_machines_decide_nothing(connect: Connect, wrong_s: float) -> None:
    clock, theirs = Clock(), Clock(1_795_953_600.0 + wrong_s)
    a, b = lease(connect, "a", clock), lease(connect, "b", theirs)
    a.try_once()
    for _ in range(20):
        for each in (clock, theirs):
            each.pass_(2)
        assert a.try_once()
        assert not b.try_once()
    for _ in range(7):
        theirs.pass_(2)
        assert not b.try_once()
    theirs.pass_(2)
    assert b.try_once()


def test_who_comes_later_waits_a_whole_duration_since_it_saw_it(connect: Connect) -> None:
    clock = Clock()
    lease(connect, "a", clock).try_once()
    clock.pass_(3600)  # the holder has been dead for an hour: nobody can know
    b = lease(connect, "b", clock)
    assert not b.try_once()
    clock.pass_(15)
    assert b.try_once()


def test_a_release_lets_another_take_over_at_once(connect: Connect, kept: Kept) -> None:
    clock = Clock()
    a, b = lease(connect, "a", clock), lease(connect, "b", clock)
    a.try_once()
    b.try_once()
    a.release()
    assert not a.leads
    assert "holderIdentity" not in spec(kept)
    assert spec(kept)["leaseDurationSeconds"] == 1
    assert b.try_once()
    assert spec(kept)["leaseTransitions"] == 1


def test_who_does_not_lead_releases_nothing(connect: Connect, kept: Kept) -> None:
    clock = Clock()
    a, b = lease(connect, "a", clock), lease(connect, "b", clock)
    a.try_once()
    b.try_once()
    b.release()
    assert spec(kept)["holderIdentity"] == "a"


def test_of_two_that_write_at_once_one_leads(connect: Connect, kept: Kept) -> None:
    clock = Clock()
    a, b = lease(connect, "a", clock), lease(connect, "b", clock)

    def faster() -> None:
        kept.before_write = None
        assert b.try_once()

    kept.before_write = faster
    assert not a.try_once()
    assert (a.trouble, b.leads) == (None, True)


def test_the_api_server_away_is_said_and_leading_goes_on_when_it_is_back(
    connect: Connect, kept: Kept
) -> None:
    clock = Clock()
    a = lease(connect, "a", clock)
    a.try_once()
    kept.away = AWAY
    clock.pass_(11)
    assert not a.try_once()
    assert "away" in (a.trouble or "")
    kept.away = None
    assert a.try_once()
    assert (a.trouble, spec(kept)["leaseTransitions"]) == (None, 0)


def test_a_lease_that_somebody_deleted_is_made_again(connect: Connect, kept: Kept) -> None:
    clock = Clock()
    a = lease(connect, "a", clock)
    a.try_once()
    del kept.objects["leases", "chat-fallback"]
    clock.pass_(2)
    assert a.try_once()
    assert spec(kept)["holderIdentity"] == "a"


def test_it_is_held_by_a_thread_and_released_at_the_end(connect: Connect, kept: Kept) -> None:
    times = Times(duration_s=2, renew_s=1.0, retry_s=0.02)
    a = Lease(connect, "prod", "chat-fallback", identity(), times)
    with a.held_in_background():
        until(lambda: a.leads)
        first = spec(kept)["renewTime"]
        until(lambda: spec(kept)["renewTime"] > first)
    assert "holderIdentity" not in spec(kept)


def test_a_bug_does_not_end_the_thread_that_holds_it(connect: Connect) -> None:
    broken = True

    def sometimes() -> Cluster:
        if broken:
            raise RuntimeError("nobody thought of this")
        return connect()

    times = Times(duration_s=2, renew_s=1.0, retry_s=0.02)
    a = Lease(sometimes, "prod", "chat-fallback", identity(), times)
    with a.held_in_background():
        until(lambda: a.trouble is not None)
        assert a.trouble == "a bug in specctl: RuntimeError: nobody thought of this"
        assert not a.leads
        broken = False
        until(lambda: a.leads)
        assert a.trouble is None


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 10
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_no_two_processes_have_one_name() -> None:
    assert identity() != identity()
