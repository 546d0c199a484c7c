"""When a deployment moves by itself: findings, former moves and the time in, a decision out.

Pure: it owns no clock and asks nobody. Down: a finding of `reactions.REACTIONS` must be there now,
have lasted `hold`, and be of more than half of the engines. Up: only through a canary, after
`restore_after`, doubled at each refusal; after two it stays down. A return that does not last a day
is a refusal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from speccli.core.fallback.reactions import REACTIONS, Way
from speccli.core.fallback.terms import (
    LASTS_S,
    Decision,
    Go,
    Kind,
    Move,
    Moved,
    Propose,
    Seen,
    Sign,
    Situation,
    State,
    Stay,
    Step,
    Terms,
)

MOST_REFUSALS = 2
"""Of one configuration, after which only a person brings it back."""
RELAPSE_S = 86400.0
"""A draft that goes bad within a day of its return was not mended."""
_HOUR_S = 3600.0
_MOVES = frozenset({"warning", "critical"})


def decide(state: State, now_is: Situation, terms: Terms, at: float) -> tuple[Decision, State]:
    """What to do, and what is to be remembered of this look."""
    if now_is.busy is None:  # what comes of it is seen when it is through
        state = _arrived(state, now_is, at)
    state = replace(state, seen=_seen(state, now_is, terms, at))
    decision = _decide(state, now_is, terms, at)
    return decision, replace(state, proposal=_proposal(decision, state, now_is))


def _proposal(decision: Decision, state: State, now_is: Situation) -> Move | None:
    """What stands to be accepted; it does not come and go with every look."""
    if isinstance(decision, Propose):
        return decision.move
    before = state.proposal
    if before is None or isinstance(decision, Go) or before.revision != now_is.revision:
        return None
    keeps = decision.why in {"blind", "busy"} or before.code in state.seen
    return before if keeps and before.source == state.rung else None


def _decide(state: State, now_is: Situation, terms: Terms, at: float) -> Decision:
    if now_is.busy is not None:
        return Stay("busy", now_is.busy)
    if now_is.blind is not None:
        return Stay("blind", now_is.blind)
    held, pending = _held(state, now_is, terms, at)
    if held is not None:
        return _down(state, now_is, terms, held, at)
    if pending is not None:
        code, left = pending
        return Stay("holding", f"{code} must last {_span(left)} more")
    if now_is.at > 0:
        return _back(state, now_is, terms, at)
    return Stay("well", f"{now_is.ladder[0].name} serves, and nothing speaks against it")


# ---- what was seen ----


def _arrived(state: State, now_is: Situation, at: float) -> State:
    """The state, where something else serves than at the last look: evidence is cut there."""
    rung = now_is.ladder[now_is.at].name
    if state.configuration != now_is.configuration:
        fresh = State(now_is.configuration, rung, at)
        return replace(
            fresh,
            moves=state.moves,
            under_way=state.under_way,
            accepted_at=state.accepted_at,
            tries=state.tries,
        )
    if state.rung == rung:
        return state
    last = state.moves[-1] if state.moves else None
    former = _index(now_is.ladder, state.rung)
    if last is None or last.target != rung or not _may_be_it(last, at):  # a person's, or a tool's
        kind: Kind = "restore" if former is not None and now_is.at < former else "down"
        state = state.with_move(Moved(at, kind, state.rung, rung, "done", by="others"))
        if kind == "restore" and now_is.at == 0:  # whoever brought the draft back knows better
            state = replace(state, failed=(), refusals=0, refused_at=None, inconclusive=0)
    state = replace(state, rung=rung, since=at, seen={})
    return state


def _may_be_it(last: Moved, at: float) -> bool:
    """Whether a move of ours led here: one that ended otherwise may have come through since."""
    if last.outcome == "done":
        return True
    return last.by == "watch" and last.outcome in {"unproven", "failed"} and at - last.at < LASTS_S


def _index(ladder: Sequence[Step], name: str) -> int | None:
    return next((i for i, step in enumerate(ladder) if step.name == name), None)


def _seen(state: State, now_is: Situation, terms: Terms, at: float) -> dict[str, Seen]:
    if now_is.blind is not None or now_is.busy is not None:
        return {k: s for k, s in state.seen.items() if at - s.last <= terms.clear_s}
    found = {sign.code for sign in now_is.signs if _speaks(sign)}
    seen = {k: s for k, s in state.seen.items() if at - s.last <= terms.clear_s}
    for code in found:
        seen[code] = Seen(seen[code].since if code in seen else at, at)
    return seen


def _speaks(sign: Sign) -> bool:
    return sign.code in REACTIONS and sign.severity in _MOVES and sign.share > 0.5


def _held(
    state: State, now_is: Situation, terms: Terms, at: float
) -> tuple[Sign | None, tuple[str, float] | None]:
    """The worst finding that has lasted; else the one that lacks least, and how much."""
    order = list(REACTIONS)
    speaking = sorted(
        filter(_speaks, now_is.signs), key=lambda s: (s.severity != "critical", order.index(s.code))
    )
    waiting = []
    for sign in speaking:
        left = terms.hold_s - (at - state.seen[sign.code].since)
        if left <= 0:
            return sign, None
        waiting.append((sign.code, left))
    return None, min(waiting, key=lambda each: each[1], default=None)


# ---- down ----


def _down(state: State, now_is: Situation, terms: Terms, sign: Sign, at: float) -> Decision:
    step = now_is.ladder[now_is.at]
    reaction = REACTIONS[sign.code]
    to = choose(now_is, sign.way or reaction.way, state.failed)
    if to is None:
        return _nowhere(state, now_is, sign)
    why = f"{sign.code}: {sign.evidence}; {reaction.why}"
    move = _move("down", state, now_is, now_is.ladder[to].name, sign.code, why, at)
    if not sign.sure:
        return Propose(move, "unsure", "draft or traffic, which cannot be told: a person decides")
    last = state.moves[-1] if state.moves else None
    cooling = terms.cool_down_s - (at - last.at) if last else 0.0
    # The ladder has an end, so a way down does; what is critical must not wait out a cool-down.
    if cooling > 0 and sign.severity != "critical":
        return Stay(
            "cool_down", f"{sign.code} at {step.name}: cools down for {_span(cooling)} more"
        )
    return _allowed(move, state, terms, at)


def choose(now_is: Situation, way: Way, failed: Sequence[str] = ()) -> int | None:
    """The rung to go to; None where there is none. Always a lower one than what serves."""
    here = now_is.ladder[now_is.at]
    below = [
        i
        for i, step in enumerate(now_is.ladder)
        if i > now_is.at and step.refusal is None and step.name not in failed
    ]
    fit = [i for i in below if _fits(now_is.ladder[i], here, way)]
    if way == "off":  # anything else has a part of what is wrong
        fit = [i for i in below if i == now_is.standby or now_is.ladder[i].method == "none"]
    if way == "none":
        fit = [i for i in below if now_is.ladder[i].method == "none"]
    if now_is.standby in fit:
        return now_is.standby  # serves at once, and nobody is restarted
    return min(fit, default=None)


def _fits(step: Step, here: Step, way: Way) -> bool:
    if way == "down":
        return True
    if way == "less":
        shorter = step.method == here.method and (step.k < here.k or step.scheduled)
        return shorter or step.method == "none"
    return not step.own and (here.own or step.method != here.method)


def _nowhere(state: State, now_is: Situation, sign: Sign) -> Stay:
    step = now_is.ladder[now_is.at]
    if now_is.at == len(now_is.ladder) - 1:
        return Stay("bottom", f"{sign.code} at {step.name}, the lowest rung: a person must look")
    refused = [f"{s.name}: {s.refusal}" for s in now_is.ladder[now_is.at + 1 :] if s.refusal]
    tried = [f"{name}: could not be reached" for name in state.failed]
    known = "; ".join([*refused, *tried]) or "no rung helps against it"
    return Stay("exhausted", f"{sign.code} at {step.name}, and nowhere to go ({known})")


# ---- up ----


def _back(state: State, now_is: Situation, terms: Terms, at: float) -> Decision:
    step, top = now_is.ladder[now_is.at], now_is.ladder[0]
    refusals = max(state.refusals, now_is.refused)
    if refusals >= MOST_REFUSALS:
        return Stay(
            "stays_down",
            f"{step.name} serves: {top.name} was refused {refusals} times (or did not last, or its "
            "return failed), and stays down "
            "until its draft or the recipe changes, or a person restores it",
        )
    ends = (state.since, state.refused_at, now_is.refused_at, 0.0)
    began = max(each for each in ends if each is not None)
    wait = terms.restore_after_s * 2**refusals
    # One that shows nothing costs requests too: not every hour, for ever.
    unclear = max(0, state.inconclusive - 1)
    left = max(wait, min(wait * 2**unclear, RELAPSE_S)) - (at - began)
    last = state.moves[-1] if state.moves else None
    cooling = terms.cool_down_s - (at - last.at) if last else 0.0
    left = max(left, cooling)
    if left > 0:
        told = f"; {state.inconclusive} canaries in a row showed nothing" if unclear else ""
        words = f"{step.name} serves; {top.name} is tried again in {_span(left)}{told}"
        return Stay("waiting", words)
    if not now_is.traffic:
        return Stay("idle", f"{step.name} serves; without traffic a canary proves nothing")
    why = f"{step.name} has served for {_span(at - began)}: {top.name} is tried in a canary"
    move = _move("restore", state, now_is, top.name, "", why, at)
    if _fell_by_hand(state):
        return Propose(move, "approval", "a person took it down, so a person brings it back")
    return _allowed(move, state, terms, at)


def _fell_by_hand(state: State) -> bool:
    falls = [made for made in state.moves if made.kind == "down" and made.outcome == "done"]
    return not falls or falls[-1].by == "others"


# ---- both ----


def _allowed(move: Move, state: State, terms: Terms, at: float) -> Decision:
    """The move, unless something keeps it to people."""
    if not terms.auto:
        return Propose(move, "approval", "it moves nothing without --auto")
    if terms.quiet.holds(at):
        until = terms.quiet.clock(terms.quiet.ends(at))
        return Propose(move, "quiet", f"quiet hours until {until}")
    spent = [made.at for made in state.moves if at - made.at < _HOUR_S]
    if len(spent) >= terms.moves_per_hour:
        free = _HOUR_S - (at - spent[-terms.moves_per_hour])
        words = f"{terms.moves_per_hour} moves an hour are made; the next in {_span(free)}"
        return Propose(move, "budget", words)
    return Go(move)


def _move(
    kind: Kind, state: State, now_is: Situation, target: str, code: str, why: str, at: float
) -> Move:
    source = now_is.ladder[now_is.at].name
    before = state.proposal
    same = (kind, source, target, now_is.revision)
    if before and (before.kind, before.source, before.target, before.revision) == same:
        return replace(before, code=code, why=why)
    parts = (kind, now_is.configuration, now_is.revision, source, target, f"{at:.0f}")
    name = hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:8]
    of, configuration = now_is.revision, now_is.configuration
    return Move(name, kind, source, target, code, why, of, at, configuration)


def after(state: State, made: Moved) -> State:
    """What is remembered once a move has ended, well or not."""
    last_return = next((m for m in reversed(state.moves) if m.kind == "restore"), None)
    state = replace(state.with_move(made), under_way=None, accepted_at=None, tries=0)
    state = replace(state, proposal=None, seen={})
    if made.outcome == "unproven" and made.kind == "down":
        return state  # what serves is seen at the next look
    if made.outcome == "done":
        state = replace(state, rung=made.target, since=made.at)
        if made.kind == "restore":
            return replace(state, failed=(), inconclusive=0)
        returned = last_return is not None and last_return.outcome == "done"
        if returned and last_return is not None and made.at - last_return.at < RELAPSE_S:
            return replace(state, refusals=state.refusals + 1, refused_at=made.at)
        return state
    if made.kind == "down":
        return replace(state, failed=tuple(dict.fromkeys((*state.failed, made.target))))
    if made.outcome in {"inconclusive", "unproven"}:
        return replace(state, inconclusive=state.inconclusive + 1, refused_at=made.at)
    # One that was undone rolled the pool to and fro: it is not tried for ever either.
    return replace(state, refusals=state.refusals + 1, refused_at=made.at, inconclusive=0)


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
