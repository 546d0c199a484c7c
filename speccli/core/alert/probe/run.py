"""`alert probe`: every check on every server; a dead engine ends it."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from speccli.core.alert.probe.client import Client
from speccli.core.alert.probe.features import CHECKS
from speccli.core.alert.probe.greedy import compare
from speccli.core.alert.probe.outcome import Outcome, Probed
from speccli.core.sources.scrape import Access
from speccli.core.sources.targets import Target

_ANSWER_S = 60.0


async def probe(
    targets: Sequence[Target], plain: Target | None, access: Access, *, deadline_s: float
) -> Probed:
    """Probe servers, one after the other. `plain`: the same model without speculation."""
    outcomes: list[Outcome] = []
    simulated = False
    for target in targets:
        async with client_of(target, access, deadline_s) as client:
            outcomes += await _one(client, target, plain, access, deadline_s)
            simulated = simulated or client.simulated
    return Probed(tuple(outcomes), simulated)


def client_of(target: Target, access: Access, deadline_s: float) -> Client:
    """A client of a server; what its URL brings is meant for it alone."""
    basic = None
    if target.user is not None:
        pair = f"{target.user}:{target.password or ''}".encode()
        basic = f"Basic {base64.b64encode(pair).decode()}"
    return Client(target.name, access, deadline_s=min(_ANSWER_S, deadline_s), basic=basic)


async def _one(
    client: Client, target: Target, plain: Target | None, access: Access, deadline_s: float
) -> list[Outcome]:
    subject = target.name.split("://")[-1]
    met = await client.meet()
    if not met.ok or not client.model:
        hint = "check the address; an API key goes into --token"
        return [Outcome("F-ALIVE", "unknown", subject, met.said, "it cannot be asked", hint)]
    outcomes = [Outcome("F-ALIVE", "pass", subject, f"it serves {client.model}")]
    if plain is not None:
        async with client_of(plain, access, deadline_s) as other:
            known = await other.meet()
            if known.ok and other.model:
                outcome, dying = await compare(client, other, subject)
            else:
                words = f"the baseline {plain.name}: {known.said}"
                outcome, dying = Outcome("F-GREEDY", "unknown", subject, words), False
        outcomes.append(outcome)
        if dead := await _death(client, outcome, subject, dying=dying):
            return [*outcomes, dead]
    for check in CHECKS:
        outcome, dying = await check(client, subject)
        outcomes.append(outcome)
        if dead := await _death(client, outcome, subject, dying=dying):
            return [*outcomes, dead]
    return outcomes


async def _death(client: Client, after: Outcome, subject: str, *, dying: bool) -> Outcome | None:
    why = await client.died(may_be_dying=dying)
    if why is None:
        return None
    return Outcome(
        "ENGINE_DOWN",
        "critical",
        subject,
        f"the engine is gone after {after.rule}: {why}",
        "a request of this kind ends the engine: every client can do that",
        "read the last lines of its log; serve such requests without speculation until it is fixed",
    )
