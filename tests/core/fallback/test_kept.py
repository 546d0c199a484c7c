"""What is remembered in the cluster: whole, by one writer at a time, and bounded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.fallback import audit
from speccli.core.fallback.kept import Kept, KeptError, as_object, load, save, telling
from speccli.core.fallback.terms import Move, Moved, Seen, State
from speccli.core.kube.client import Cluster
from tests.core.fallback.situations import NOON
from tests.support.api_server import ApiServer
from tests.support.kept_objects import Kept as Objects

MOVE = Move("ab12cd34", "down", "eagle3", "ngram", "ZERO_ACCEPTANCE", "nothing is taken", 7, NOON)
STATE = State(
    "c1",
    "eagle3",
    NOON,
    (Moved(NOON, "restore", "ngram", "eagle3", "refused", "me@here"),),
    1,
    NOON + 1,
    ("k1",),
    {"ZERO_ACCEPTANCE": Seen(NOON, NOON + 30)},
    MOVE,
    replace(MOVE, id="ffffffff"),
    NOON + 2,
)


def told(what: audit.What = "proposed", move: Move | None = MOVE) -> audit.Entry:
    return audit.entry(what, "chat", "watch-1", NOON, "why", move, 3.5)


def test_what_was_written_is_read_again(cluster: Cluster) -> None:
    assert load(cluster, "prod", "chat") == Kept()
    kept = save(cluster, "prod", "chat", Kept().after(STATE, told()))
    assert load(cluster, "prod", "chat") == kept
    assert kept.state == STATE
    again = save(cluster, "prod", "chat", kept.after(State(), told("done")))
    assert [each.what for each in load(cluster, "prod", "chat").audit] == ["proposed", "done"]
    assert again.version != kept.version


def test_of_two_writers_the_second_is_told_and_nothing_of_the_first_is_lost(
    cluster: Cluster,
) -> None:
    first = save(cluster, "prod", "chat", Kept())
    save(cluster, "prod", "chat", first.after(STATE))
    with pytest.raises(KeptError, match="somebody else"):
        save(cluster, "prod", "chat", first.after(State(rung="ngram")))
    assert load(cluster, "prod", "chat").state == STATE
    with pytest.raises(KeptError, match="somebody else"):
        save(cluster, "prod", "chat", Kept().after(State(rung="ngram")))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="empty"),
        pytest.param({"state.json": "no json", "audit.json": "{}"}, id="no-json"),
        pytest.param({"state.json": '{"schema": "v9"}', "audit.json": '{"schema": 1}'}, id="newer"),
        pytest.param({"state.json": "[]", "audit.json": "[]"}, id="a-list"),
    ],
)
def test_what_was_changed_by_hand_is_refused_in_one_line(
    cluster: Cluster, kept: Objects, data: dict[str, str]
) -> None:
    body: dict[str, Any] = {"metadata": {"name": "chat-fallback", "resourceVersion": "1"}}
    kept.objects["configmaps", "chat-fallback"] = {**body, "data": data}
    with pytest.raises(KeptError, match="ConfigMap chat-fallback cannot be read") as caught:
        load(cluster, "prod", "chat")
    assert "\n" not in caught.value.message


PLAIN = json.loads(as_object(Kept(STATE), "prod", "chat")["data"]["state.json"])


@pytest.mark.parametrize(
    "change",
    [
        {"since": "yesterday"},
        {"seen": {"ZERO_ACCEPTANCE": {"since": None, "last": None}}},
        {"refused_at": "x"},
        {"refusals": None},
        {"accepted_at": "z"},
        {"moves": [{**PLAIN["moves"][0], "at": "x"}]},
        {"moves": [{**PLAIN["moves"][0], "outcome": "well"}]},
        {"proposal": {**PLAIN["proposal"], "id": None}},
        {"under_way": {**PLAIN["under_way"], "kind": "up"}},
        {"under_way": {**PLAIN["under_way"], "until": "x"}},
        {"under_way": {**PLAIN["under_way"], "revision": None}},
    ],
)
def test_a_value_that_cannot_be_is_said_and_what_to_do(
    cluster: Cluster, kept: Objects, change: dict[str, Any]
) -> None:
    body = as_object(Kept(STATE, (), "1"), "prod", "chat")
    body["metadata"]["resourceVersion"] = "1"
    body["data"]["state.json"] = json.dumps({**PLAIN, **change})
    kept.objects["configmaps", "chat-fallback"] = body
    with pytest.raises(KeptError, match="cannot be read") as caught:
        load(cluster, "prod", "chat")
    assert "delete it" in str(caught.value.hint)


def test_what_a_former_version_wrote_is_read(cluster: Cluster, kept: Objects) -> None:
    body = as_object(Kept(STATE, (), "1"), "prod", "chat")
    body["metadata"]["resourceVersion"] = "1"
    plain = json.loads(json.dumps(PLAIN))
    old = {key: value for key, value in plain.items() if key not in {"tries", "inconclusive"}}
    for move in (old["proposal"], old["under_way"]):
        del move["configuration"], move["until"]
    body["data"]["state.json"] = json.dumps(old)
    kept.objects["configmaps", "chat-fallback"] = body
    assert load(cluster, "prod", "chat").state == STATE


def test_the_audit_is_bounded_and_far_from_what_an_object_may_hold() -> None:
    kept = Kept()
    for n in range(3 * audit.MOST):
        kept = kept.after(STATE, audit.entry("done", "chat", "w", NOON + n, "x" * 5000, MOVE))
    assert len(kept.audit) == audit.MOST
    assert kept.audit[-1].at == NOON + 3 * audit.MOST - 1
    assert sum(map(len, as_object(kept, "prod", "chat")["data"].values())) < 300_000


def test_looks_that_find_the_same_are_no_news() -> None:
    later = replace(STATE, seen={"ZERO_ACCEPTANCE": Seen(NOON, NOON + 60)})
    assert telling(later) == telling(STATE)
    assert telling(replace(STATE, seen={})) != telling(STATE)


def test_a_line_has_all_that_is_known_of_a_move() -> None:
    line = json.loads(told().line)
    assert line == {
        "schema": "specctl.fallback-event/v1",
        "at": "2026-11-29T12:00:00.000Z",
        "what": "proposed",
        "deployment": "chat",
        "by": "watch-1",
        "words": "why",
        "id": "ab12cd34",
        "kind": "down",
        "from": "eagle3",
        "to": "ngram",
        "code": "ZERO_ACCEPTANCE",
        "revision": 7,
        "seconds": 3.5,
    }
    assert audit.Entry.from_json(told().to_json()) == told()


def test_an_event_is_on_the_deployment(cluster: Cluster, kept: Objects, api: ApiServer) -> None:
    meta = {"name": "chat", "uid": "u-1", "resourceVersion": "3"}
    kept.objects["deployments", "chat"] = {"metadata": meta}
    audit.emit(cluster, told("stays_down", None), "prod")
    (event,) = [v for (kind, _), v in kept.objects.items() if kind == "events"]
    assert event["involvedObject"]["uid"] == "u-1"
    assert (event["reason"], event["type"]) == ("FallbackStaysDown", "Warning")
    assert (event["message"], event["source"]["component"]) == ("why", "specctl-fallback")
