"""`alert canary`: a fixed set of prompts at temperature 0, whose acceptance only a fault changes.

No traffic has to be waited out and none can be to blame: what differs from the stored run is the
draft, the target or the engine. Where answers tell their own drafts (vLLM's per-request metrics)
those are counted; else the server's counters, and then other traffic must stay away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from speccli.core.alert.probe.client import Client, Reply
from speccli.core.baseline import Baseline, Key
from speccli.core.baseline.record import key_of
from speccli.core.errors import SourceError, SpecctlError
from speccli.core.sources.base import Scrape
from speccli.core.sources.scrape import Access, ScrapeSource
from speccli.core.sources.targets import Target
from speccli.core.stats.drift import Dispersion, per_draft_variance
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot
from speccli.core.stats.window import Settings, Window

DATASET = "specctl-canary-1"
SAMPLING = "temperature=0"
TOLERANCE = 0.02
"""Share of the acceptance length that may be lost: what rounding in other batches comes to."""
MAX_TOKENS = 128
_AT_ONCE = 4
_FOREIGN = 0.05
_SETTLE_S = 0.5
_LEAST_DRAFTS = 200
PROMPTS: tuple[str, ...] = (
    "Explain in plain words why the sky is blue.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Summarise the plot of Romeo and Juliet in five sentences.",
    "List ten uses for a paper clip.",
    "Translate into German: The train leaves at eight in the morning.",
    "What is the difference between TCP and UDP?",
    "Write a short poem about autumn rain.",
    "A shop sells pens at 3 for 2 dollars. What do 18 pens cost? Show the steps.",
    "Explain how a refrigerator works.",
    "Write a SQL query that counts orders per customer for the last 30 days.",
    "Give a recipe for pancakes with quantities.",
    "Write a polite e-mail asking for a meeting to be moved to Friday.",
    "Describe the water cycle step by step.",
    "What are the pros and cons of electric cars?",
    "Write a bash one-liner that finds the ten largest files under a folder.",
    "Tell a short story about a lighthouse keeper and a ship.",
)


@dataclass(frozen=True, slots=True)
class Run:
    """One server's canary."""

    target: str
    snapshot: Snapshot
    """From before the prompts to after them."""
    counted_by: str
    """`answers` or `counters`."""
    answered: int
    tokens: int
    foreign: float | None
    """Share of the tokens counted that were not the canary's; None where answers were counted."""

    @property
    def contaminated(self) -> bool:
        """Whether others' traffic is in the numbers."""
        return self.foreign is not None and self.foreign > _FOREIGN

    def to_json(self) -> dict[str, Any]:
        """Its form beside the verdict."""
        return {
            "target": self.target,
            "dataset": DATASET,
            "counted_by": self.counted_by,
            "prompts": len(PROMPTS),
            "answered": self.answered,
            "tokens": self.tokens,
            "foreign_share": self.foreign,
            "contaminated": self.contaminated,
        }


async def canary(target: Target, access: Access, client: Client, *, deadline_s: float) -> Run:
    """Send the prompts and count.

    Raises:
        SourceError: the server cannot be asked, or read.
    """
    source = ScrapeSource([target], deadline_s=deadline_s, access=access)
    window = Window(Settings(window_s=None, span_s=None))
    try:
        met = await client.meet()
        if not met.ok or not client.model:
            raise SourceError(f"{target.name}: {met.said}", hint="an API key goes into --token")
        await _send(client, PROMPTS[:1], 8)  # the first request of a server is slow
        before = await _scrape(source)
        replies = await _send(client, PROMPTS, MAX_TOKENS)
        await asyncio.sleep(_SETTLE_S)
        after = await _scrape(source)
    finally:
        await source.aclose()
    failed = [reply for reply in replies if not reply.ok]
    if failed:
        raise SourceError(
            f"{target.name}: {len(failed)} of {len(PROMPTS)} prompts failed: {failed[0].said}",
            hint="`specctl alert probe` looks closer",
        )
    tokens = sum(reply.tokens for reply in replies)
    page = page_of(client.model, replies)
    if page is not None:
        before = Scrape(before.at, before.target, 200, page[0], info=before.info)
        after = Scrape(max(after.at, before.at + 1), after.target, 200, page[1], info=after.info)
    window.push([before])
    window.push([after])
    snapshot = window.snapshot()
    foreign = None if page is not None else _foreign(snapshot, tokens)
    by = "counters" if page is None else "answers"
    return Run(target.name, snapshot, by, len(replies), tokens, foreign)


async def _send(client: Client, prompts: Sequence[str], max_tokens: int) -> list[Reply]:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(prompt: str) -> Reply:
        async with turn:
            return await client.chat(prompt, max_tokens, temperature=0.0)

    return await asyncio.gather(*map(one, prompts))


async def _scrape(source: ScrapeSource) -> Scrape:
    (scrape,) = await source.scrapes()
    if scrape.error is not None or scrape.status != 200:
        why = scrape.error or f"HTTP {scrape.status}"
        raise SourceError(f"{scrape.target}/metrics: {why}")
    return scrape


def page_of(model: str, replies: Sequence[Reply]) -> tuple[bytes, bytes] | None:
    """What the answers say of their own drafts, as pages of counters; None if one does not."""
    drafts, drafted, accepted = 0, 0, 0
    positions: list[int] = []
    for reply in replies:
        metrics = reply.body.get("metrics")
        told = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
        if not isinstance(told, Mapping):
            return None
        try:
            steps = [int(n) for n in told["acceptance_histogram"]]
            drafts += int(told["num_spec_steps"])
            drafted += int(told["num_draft_tokens"])
            accepted += int(told["num_accepted_draft_tokens"])
        except (KeyError, TypeError, ValueError):
            return None
        for i in range(len(steps) - 1):
            if i == len(positions):
                positions.append(0)
            positions[i] += sum(steps[i + 1 :])
    tokens = sum(reply.tokens for reply in replies)
    counts: dict[str, float] = {
        "vllm:spec_decode_num_drafts_total": drafts,
        "vllm:spec_decode_num_draft_tokens_total": drafted,
        "vllm:spec_decode_num_accepted_tokens_total": accepted,
        "vllm:generation_tokens_total": tokens,
    }
    name = model.replace("\\", "\\\\").replace('"', '\\"')

    def text(share: int) -> bytes:
        labels = f'engine="0",model_name="{name}"'
        lines = [f"{metric}{{{labels}}} {share * value}" for metric, value in counts.items()]
        at = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        for i, value in enumerate(positions):
            lines.append(f'{at}{{{labels},position="{i}"}} {share * value}')
        return ("\n".join(lines) + "\n").encode()

    return text(0), text(1)


def _foreign(snapshot: Snapshot, own: int) -> float:
    counted = (snapshot.subject.pool.sums("generation_tokens") or (0.0,))[0]
    return max(0.0, counted - own) / counted if counted > 0 else 0.0


def baseline_of(run: Run, name: str) -> Baseline:
    """The run as something later ones are held against.

    Raises:
        SpecctlError: it says too little, or not of the canary alone.
    """
    if run.contaminated:
        raise SpecctlError(
            f"{100 * (run.foreign or 0):.0f} % of the tokens counted were other traffic's",
            hint="record it while nobody else uses the server",
        )
    pool = run.snapshot.subject.pool
    sums = pool.sums("accepted_tokens", "draft_tokens", "drafts")
    if sums is None or sums[2] < _LEAST_DRAFTS or sums[1] <= 0:
        raise SpecctlError(
            f"{0 if sums is None else sums[2]:.0f} drafts were made, {_LEAST_DRAFTS} are needed",
            hint="is speculation on? `specctl status` tells",
        )
    accepted, drafted, drafts = sums
    rate = accepted / drafted
    positions = tuple(
        number.value for number in run.snapshot.fleet.acceptance_by_position if number.value
    )
    scatter = Dispersion(per_draft=per_draft_variance(positions, rate), clustering=2.0)
    return Baseline(
        name=name,
        key=running_key(run.snapshot.engines[0]),
        rate=rate,
        length=1 + accepted / drafts,
        positions=positions,
        drafts=drafts,
        created=datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
        source=f"canary of {run.target}",
        simulated=run.snapshot.simulated,
        tolerance=TOLERANCE,
        fleet=scatter,
        engine=scatter,
    )


def running_key(engine: EngineSnapshot | None = None) -> Key:
    """The key of a canary's run."""
    fixed = Key(dataset=DATASET, sampling=SAMPLING)
    return fixed if engine is None else fixed.over(key_of(engine))
