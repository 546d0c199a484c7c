"""The watch's loop: a draft gone bad, people asked, faults, leaders that come and go."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from speccli.core.baseline import Baseline, Key
from speccli.core.deploy import cluster as deploying
from speccli.core.deploy.asked import Asked
from speccli.core.errors import UsageError
from speccli.core.fallback.audit import entry
from speccli.core.fallback.carrying import Ended, carried
from speccli.core.fallback.kept import KeptError, save
from speccli.core.fallback.proposals import accept, concluded
from speccli.core.fallback.terms import LASTS_S, Move
from speccli.core.kube.record import recipe_of
from speccli.core.manifests.options import RenderOptions
from tests.core.deploy.test_cluster import PLAIN, leads_to
from tests.core.fallback.watched import LOW, ZERO, Led, Watched


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_draft_gone_bad_moves_the_traffic_to_the_warm_standby(watched: Watched) -> None:
    watched.look()
    assert watched.kept.state.rung == "eagle3"
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=30)
    assert leads_to(watched.world.fake) == "chat"
    watched.look(seconds=30)
    assert leads_to(watched.world.fake) == "chat-standby"
    assert watched.audit == ["begun", "done"]
    assert watched.events == ["FallbackBegun", "FallbackDone"]
    begun, done = watched.said
    assert (done["from"], done["to"], done["code"]) == ("eagle3", "ngram", "ZERO_ACCEPTANCE")
    assert begun["id"] == done["id"]
    page = watched.page()
    moved = 'moves_total{kind="down",from="eagle3",to="ngram",outcome="done"}'
    assert page[moved] == 1
    assert page["leader"] == 1
    watched.look()
    assert watched.page()['rung{rung="ngram"}'] == 1
    assert watched.page()['rung{rung="eagle3"}'] == 0
    assert watched.channel.lines == ["FIRING warning FALLEN_BACK chat"]


def test_windows_are_of_one_method(watched: Watched) -> None:
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=90)
    watched.look(seconds=3000)
    assert watched.labels == ["main-eagle3-k3", "standby-ngram-k3"]
    assert watched.left == ["main-eagle3-k3"]
    assert leads_to(watched.world.fake) == "chat-standby"  # ZERO was said of EAGLE-3 alone


def test_without_auto_it_proposes_and_a_person_says_yes() -> None:
    watched = Watched(auto=False)
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=120)
    assert leads_to(watched.world.fake) == "chat"
    assert (watched.audit, watched.events) == (["proposed"], ["FallbackProposed"])
    assert watched.channel.lines == ["FIRING warning FALLBACK_PROPOSED chat"]
    assert watched.page()["proposal"] == 1
    move = watched.kept.state.proposal
    assert move is not None
    assert f"specctl fallback apply chat --proposal {move.id} -n llm" in watched.said[0]["words"]
    assert carry_accepted(watched, move.id).outcome == "done"
    assert leads_to(watched.world.fake) == "chat-standby"
    assert watched.audit == ["proposed", "accepted", "done"]
    watched.look()
    assert watched.channel.lines[1:] == [
        "FIRING warning FALLEN_BACK chat",
        "RESOLVED warning FALLBACK_PROPOSED chat",
    ]
    assert watched.kept.state.moves[-1].by == "me@here"


def carry_accepted(watched: Watched, proposal: str) -> Ended:
    server: Any = watched.server
    move = accept(server, None, "chat", proposal, "me@here", watched.at)
    ended = carried(watched.connect, "llm", "chat", move, watched.world.heard)
    concluded(server, None, "chat", move, ended, "me@here", watched.at)
    return ended


def test_a_return_that_a_person_accepts_is_held_to_the_baseline_of_the_watch() -> None:
    watched = Watched(auto=False)
    watched.world.go()  # by hand, so that the way back is proposed
    watched.baselines = tuple(
        Baseline(f"of {method}", Key(method=method, k=3), rate, 2.0, (), 1e4)
        for method, rate in (("ngram", 0.2), ("eagle3", 0.71))
    )
    watch = watched.another(auto=False)
    watched.look(seconds=3900, watch=watch)
    move = watched.kept.state.proposal
    assert move is not None
    assert (move.kind, move.well) == ("restore", 0.71)
    accepted: Any = accept(watched.server, None, "chat", move.id, "me@here", watched.at)  # type: ignore[arg-type]
    assert accepted.well == 0.71


def at_its_write(watched: Watched, does: Callable[[], object]) -> None:
    """Another client is faster, once."""

    def before() -> None:
        watched.server.fence = None
        does()

    watched.server.fence = before


def test_a_proposal_is_accepted_though_the_watch_writes_at_the_same_moment() -> None:
    watched = Watched(auto=False)
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=120)
    move = watched.kept.state.proposal
    assert move is not None
    version = watched.kept.version
    at_its_write(watched, lambda: watched.look(seconds=60))
    server = cast(Any, watched.server)
    assert accept(server, None, "chat", move.id, "me@here", watched.at) == move
    assert watched.kept.version != version
    assert watched.audit == ["proposed", "accepted"]


def test_of_two_persons_who_accept_a_proposal_at_the_same_moment_one_carries_it() -> None:
    watched = Watched(auto=False)
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=120)
    move, server = watched.kept.state.proposal, cast(Any, watched.server)
    assert move is not None
    words = ("llm", "chat", move.id)
    at_its_write(watched, lambda: accept(server, *words, "other@there", watched.at - 1.0))
    with pytest.raises(KeptError, match="somebody else moved or proposed"):
        accept(server, *words, "me@here", watched.at)
    assert [(each.what, each.by) for each in watched.kept.audit[1:]] == [
        ("accepted", "other@there")
    ]


def test_while_a_person_carries_a_proposal_nothing_else_is_proposed() -> None:
    watched = Watched(auto=False)
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=120)
    move = watched.kept.state.proposal
    assert move is not None
    server: Any = watched.server
    assert accept(server, None, "chat", move.id, "me@here", watched.at) == move
    watched.look(seconds=600)
    assert watched.audit == ["proposed", "accepted"]
    assert watched.page()['state{why="busy"}'] == 1
    assert watched.channel.lines[-1] == "RESOLVED warning FALLBACK_PROPOSED chat"
    # Killed before anything was done: the same command goes on with it.
    assert carry_accepted(watched, move.id).outcome == "done"
    assert watched.audit == ["proposed", "accepted", "done"]
    assert [made.by for made in watched.kept.state.moves] == ["me@here"]


def test_a_proposal_that_was_accepted_and_never_carried_is_made_again() -> None:
    watched = Watched(auto=False)
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=120)
    move = watched.kept.state.proposal
    assert move is not None
    server: Any = watched.server
    accept(server, None, "chat", move.id, "me@here", watched.at)
    watched.look(seconds=3900)
    assert watched.audit == ["proposed", "accepted", "proposed"]
    assert watched.kept.state.under_way is None


def test_a_proposal_that_is_outdated_or_none_is_refused() -> None:
    watched = Watched(auto=False)
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=120)
    move = watched.kept.state.proposal
    assert move is not None
    server: Any = watched.server
    with pytest.raises(UsageError, match=f"the one that stands is {move.id}"):
        accept(server, None, "chat", "0000", "me", watched.at)
    watched.world.go("none")
    with pytest.raises(UsageError, match="outdated: it was made for eagle3 at revision 1"):
        accept(server, None, "chat", move.id, "me", watched.at)
    watched.look()
    with pytest.raises(UsageError, match="none stands"):
        accept(server, None, "chat", move.id, "me", watched.at)
    assert watched.audit[-2:] == ["moved_by_others", "withdrawn"]


def test_a_finding_that_is_over_withdraws_the_proposal() -> None:
    watched = Watched(auto=False)
    watched.signs["eagle3"] = (LOW,)
    watched.look(seconds=120)
    watched.signs.clear()
    watched.look(seconds=150)
    assert watched.audit == ["proposed", "withdrawn"]
    assert watched.channel.lines[-1] == "RESOLVED warning FALLBACK_PROPOSED chat"


def test_in_quiet_hours_it_is_told_and_nothing_moves() -> None:
    watched = Watched('fallback.quiet=["00:00-24:00"]')
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=600)
    assert leads_to(watched.world.fake) == "chat"
    assert watched.channel.lines == ["FIRING warning FALLBACK_PROPOSED chat"]
    assert "quiet hours" in watched.said[0]["words"]


def test_a_follower_looks_and_does_nothing(watched: Watched) -> None:
    watched.lease.leads = False
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=300)
    assert watched.looks > 5
    assert leads_to(watched.world.fake) == "chat"
    assert ("ConfigMap", "chat-fallback") not in watched.world.fake.objects
    assert watched.page()["leader"] == 0
    assert watched.page()['state{why="follows"}'] == 1


# ---- faults ----


def test_the_api_server_away_is_said_once_and_it_resumes(watched: Watched) -> None:
    watched.look()
    watched.signs["eagle3"] = (ZERO,)
    looks = watched.looks
    watched.server.away = True
    watched.look(seconds=300)
    assert watched.looks > looks + 5  # it keeps looking
    said = [w for w in watched.world.heard.lines if "nothing moves" in w]
    assert len(said) == 1
    watched.server.away = False
    watched.look(seconds=30)
    assert leads_to(watched.world.fake) == "chat"  # what was seen meanwhile was not decided on
    watched.look(seconds=60)
    assert leads_to(watched.world.fake) == "chat-standby"


def test_metrics_gone_moves_nothing_and_says_so(watched: Watched) -> None:
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=30)
    watched.blind = "no engine could be read"
    watched.look(seconds=3600)
    assert leads_to(watched.world.fake) == "chat"
    assert watched.page()['state{why="blind"}'] == 1
    assert watched.page()["blind_looks_total"] > 100
    assert "no engine could be read" in watched.world.heard


def test_the_standby_sick_too_ends_at_off_and_never_in_a_circle(watched: Watched) -> None:
    watched.world.fake.silent = {"chat-standby"}
    watched.signs["eagle3"] = (ZERO,)
    watched.signs["ngram"] = (ZERO,)
    watched.look(seconds=3000)
    assert watched.kept.state.rung == "none"
    downs = [made.target for made in watched.kept.state.moves if made.kind == "down"]
    assert downs == ["none"]
    assert leads_to(watched.world.fake) == "chat"


def test_a_move_that_is_undone_is_not_tried_a_second_time(watched: Watched) -> None:
    def undone(*_: Any, **__: Any) -> Ended:
        return Ended("failed", "refuted", 3.0)

    watched.watch.carry = undone
    watched.signs["eagle3"] = (LOW,)
    watched.look(seconds=120)
    assert watched.kept.state.failed == ("ngram",)
    assert watched.events == ["FallbackBegun", "FallbackFailed"]
    watched.look(seconds=1200)
    begun = [each["to"] for each in watched.said if each["what"] == "begun"]
    assert begun[:2] == ["ngram", "k1"]


def test_a_leader_that_is_lost_in_a_move_leaves_it_to_the_next(watched: Watched) -> None:
    fake, write = watched.world.fake, watched.world.fake._write

    def lost(call: str) -> None:
        write(call)
        if call == "specctl ConfigMap chat-specctl":  # the intent is written; then the lease goes
            watched.lease.leads = False
            fake._write = write  # type: ignore[method-assign]

    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=30)
    fake._write = lost  # type: ignore[method-assign]
    watched.look(seconds=30)
    assert leads_to(fake) == "chat"
    assert watched.kept.state.under_way is not None
    assert "whoever leads now" in watched.world.heard
    second = watched.another(lease=Led(who=f"{socket.gethostname()}_2"))
    watched.look(watch=second)
    assert leads_to(fake) == "chat-standby"
    assert watched.kept.state.under_way is None
    assert watched.audit == ["begun", "continued", "done"]
    assert [made.target for made in watched.kept.state.moves] == ["ngram"]
    watched.lease.leads = True
    watched.look(seconds=60)
    assert watched.audit == ["begun", "continued", "done"]


def test_a_leader_killed_before_it_could_write_the_end_down_leaves_it_to_the_next(
    watched: Watched,
) -> None:
    def dies(*args: Any, **more: Any) -> Ended:
        carried(*args, **more)
        watched.lease.leads = False
        return Ended(None, "killed", 0.0, lost=True)

    watched.watch.carry = dies
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=60)
    assert watched.kept.state.under_way is not None
    watched.look(watch=watched.another(lease=Led()))
    assert watched.audit == ["begun", "continued", "done"]
    assert watched.said[-1]["words"] == "it was through already"
    revisions = watched.world.record.current.number
    assert revisions == 2


def test_what_is_cut_short_again_and_again_has_failed(watched: Watched) -> None:
    tried: list[bool] = []

    def stuck(*_: Any, continued: bool, **__: Any) -> Ended:
        tried.append(continued)
        return Ended(None, "the API server is away", 300.0)

    watched.watch.carry = stuck
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=240)
    assert tried[:3] == [False, True, True]
    assert watched.audit[:2] == ["begun", "failed"]


def test_a_restart_keeps_moves_cool_downs_and_refusals(watched: Watched) -> None:
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=60)
    refused: list[Move] = []

    def refuses(_connect: Any, _place: str, _name: str, move: Move, *_: Any, **__: Any) -> Ended:
        refused.append(move)
        return Ended("refused", "the canary accepts less than its siblings", 60.0)

    for _ in range(3):  # a process each
        again = watched.another()
        again.carry = refuses
        watched.look(watch=again)
        watched.at += 3600 * 2 ** len(refused) + 60
    last = watched.another()
    last.carry = refuses
    watched.look(seconds=36000, watch=last)
    assert [move.kind for move in refused] == ["restore", "restore"]
    assert watched.kept.state.refusals == 2
    assert watched.audit[-1] == "stays_down"
    assert watched.events[-1] == "FallbackStaysDown"
    assert watched.page(last)['state{why="stays_down"}'] == 1


def test_somebody_else_who_writes_at_the_same_time_is_told_and_tried_again(
    watched: Watched,
) -> None:
    watched.look()
    fake, apply = watched.world.fake, watched.world.fake.apply

    def slower(obj: Any, *args: Any, **more: Any) -> Any:
        if obj["metadata"]["name"] == "chat-fallback":
            fake.apply = apply  # type: ignore[method-assign]
            fake.objects["ConfigMap", "chat-fallback"]["metadata"]["resourceVersion"] = "x"
        return apply(obj, *args, **more)

    fake.apply = slower  # type: ignore[method-assign]
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=30)
    assert "somebody else moved or proposed" in watched.world.heard
    watched.look(seconds=60)
    assert leads_to(watched.world.fake) == "chat-standby"


def test_a_deployment_that_is_not_there_is_said(watched: Watched) -> None:
    del watched.world.fake.objects["ConfigMap", "chat-specctl"]
    watched.look(seconds=60)
    assert "no deployment chat" in watched.world.heard
    assert watched.page()["looks_total"] == 3


def test_that_nobody_is_known_to_lead_is_said_once_and_that_it_is_over(watched: Watched) -> None:
    watched.lease.leads = watched.lease.somebody = False
    watched.lease.trouble = "not allowed to get leases"
    watched.look(seconds=300)
    said = [line for line in watched.world.heard.lines if "who leads cannot be told" in line]
    assert len(said) == 1
    assert "not allowed to get leases" in said[0]
    assert watched.page()["led"] == 0
    watched.lease.trouble, watched.lease.somebody = None, True
    watched.look(seconds=60)
    assert "who leads can be told again" in watched.world.heard
    assert watched.page()["led"] == 1


# ---- moves that were begun ----


def begun(watched: Watched, of: str | None = None) -> Move:
    """A move down that a leader wrote down, and then was killed."""
    watched.look()
    kept, by = watched.kept, watched.lease.who
    move = Move("cafe", "down", "eagle3", "ngram", "ZERO_ACCEPTANCE", "why", 1, watched.at)
    move = replace(move, configuration=of or kept.state.configuration).begun(watched.at)
    told = entry("begun", "chat", by, watched.at, "begun", move)
    server: Any = watched.server
    save(server, "llm", "chat", kept.after(replace(kept.state, under_way=move), told))
    return move


def test_a_move_that_was_just_begun_is_gone_on_with(watched: Watched) -> None:
    begun(watched)
    watched.look(watch=watched.another())
    assert watched.audit == ["begun", "continued", "done"]


def test_a_move_that_was_begun_long_ago_is_closed_and_decided_on_anew(watched: Watched) -> None:
    begun(watched)
    watched.at += LASTS_S + 1
    watched.look(watch=watched.another())
    assert watched.audit == ["begun", "withdrawn"]
    assert "not gone on with: it is more than 60 min old" in watched.said[-1]["words"]
    assert watched.kept.state.under_way is None
    assert leads_to(watched.world.fake) == "chat"
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=90, watch=watched.another())
    assert leads_to(watched.world.fake) == "chat-standby"


def test_a_move_that_was_begun_for_another_configuration_is_closed(watched: Watched) -> None:
    begun(watched, "another")
    watched.look(watch=watched.another())
    assert watched.audit == ["begun", "withdrawn"]
    assert "its draft or the recipe has changed" in watched.said[-1]["words"]
    assert leads_to(watched.world.fake) == "chat"


def test_a_move_is_closed_where_somebody_else_has_deployed_since(watched: Watched) -> None:
    begun(watched)
    watched.world.go("none")
    fake = watched.world.fake.objects["ConfigMap", "chat-specctl"]
    host = f"@{socket.gethostname()}"
    fake["data"] = {k: v.replace(host, "@elsewhere") for k, v in fake["data"].items()}
    watched.look(watch=watched.another())
    assert watched.audit == ["begun", "withdrawn", "moved_by_others"]
    assert re.search("revision 2 was made by .*@elsewhere since", watched.said[-2]["words"])
    assert watched.kept.state.rung == "none"


def test_a_bug_in_a_move_is_a_try_that_failed_and_reported_and_the_watch_goes_on(
    watched: Watched,
) -> None:
    found: list[BaseException] = []

    def bug(*_: Any, **__: Any) -> Ended:
        raise KeyError("spec")

    watched.signs["eagle3"] = (ZERO,)
    for _ in range(3):  # a process each: how often it was tried outlives them
        again = watched.another()
        again.carry, again.bug = bug, found.append
        watched.look(seconds=60 if not found else 0, watch=again)
    assert [repr(each) for each in found] == ["KeyError('spec')"] * 3
    assert watched.audit == ["begun", "continued", "continued", "failed"]
    assert watched.kept.state.failed == ("ngram",)
    assert watched.kept.state.under_way is None
    assert "a bug in specctl: KeyError" in watched.said[-1]["words"]


def test_an_end_that_is_known_when_it_is_told_to_stop_is_written_down(watched: Watched) -> None:
    def refused(*_: Any, **__: Any) -> Ended:
        return Ended("refused", "worse than its siblings", 60.0)

    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=30)
    watched.watch.carry = refused
    watched.at += 30

    async def go() -> None:
        await watched.watch.round()
        assert watched.watch._moving is not None
        await asyncio.to_thread(watched.watch._moving.wait, 30.0)
        await watched.watch.aclose()

    asyncio.run(go())
    assert watched.audit == ["begun", "refused"]
    assert watched.kept.state.under_way is None


def test_a_new_leader_tells_nothing_anew_and_ends_what_the_former_told() -> None:
    watched = Watched(standby=False)
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=90)
    assert watched.channel.lines == ["FIRING warning FALLEN_BACK chat"]
    second = watched.another()
    watched.look(seconds=60, watch=second)
    assert watched.channel.lines == ["FIRING warning FALLEN_BACK chat"]
    watched.signs.clear()
    first = watched.world.record.revision(1)
    assert first is not None
    plain: dict[str, Any] = PLAIN
    asked = Asked(recipe_of(first), RenderOptions(**plain))
    deploying.deploy(watched.connect, asked, watched.world.heard)
    watched.look(watch=watched.another())
    assert watched.channel.lines[1:] == ["RESOLVED warning FALLEN_BACK chat"]


def test_who_leads_again_knows_what_another_told_meanwhile() -> None:
    watched = Watched(auto=False)
    other = watched.another(auto=False, lease=Led(leads=False))
    watched.look(seconds=30)
    watched.lease.leads = False
    other.lease.leads = True  # type: ignore[misc]
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=120, watch=other)
    assert watched.channel.lines == ["FIRING warning FALLBACK_PROPOSED chat"]
    watched.look()  # follows
    watched.lease.leads = True
    watched.look(seconds=60)
    assert watched.channel.lines == ["FIRING warning FALLBACK_PROPOSED chat"]


def test_the_end_of_a_persons_move_does_not_end_one_that_the_watch_began_since(
    watched: Watched,
) -> None:
    own = begun(watched)
    old = replace(own, id="aaaa", kind="restore", source="ngram", target="eagle3")
    server: Any = watched.server
    concluded(server, None, "chat", old, Ended("refused", "x", 4000.0), "me@here", watched.at)
    assert watched.kept.state.under_way == own
    assert [made.by for made in watched.kept.state.moves] == ["me@here"]
    assert watched.audit == ["begun", "refused"]


def test_an_end_is_written_again_where_the_watch_wrote_at_the_same_moment() -> None:
    watched = Watched(auto=False)
    watched.signs["eagle3"] = (ZERO,)
    watched.look(seconds=120)
    proposal = watched.kept.state.proposal
    assert proposal is not None
    server: Any = watched.server
    move = accept(server, None, "chat", proposal.id, "me@here", watched.at)
    fake, apply = watched.world.fake, watched.world.fake.apply

    def slower(obj: Any, *args: Any, **more: Any) -> Any:
        fake.apply = apply  # type: ignore[method-assign]
        fake.objects["ConfigMap", "chat-fallback"]["metadata"]["resourceVersion"] = "x"
        return apply(obj, *args, **more)

    fake.apply = slower  # type: ignore[method-assign]
    concluded(server, None, "chat", move, Ended("failed", "x", 4.0), "me@here", watched.at)
    assert watched.kept.state.under_way is None
    assert watched.audit == ["proposed", "accepted", "failed"]


def test_what_cannot_be_read_of_the_memory_is_said_once_with_what_to_do(watched: Watched) -> None:
    watched.look()
    data = watched.world.fake.objects["ConfigMap", "chat-fallback"]["data"]
    data["state.json"] = data["state.json"].replace('"refusals": 0', '"refusals": null')
    watched.look(seconds=60)
    said = [line for line in watched.world.heard.lines if "cannot be read" in line]
    assert len(said) == 1
    assert "delete it" in said[0]
