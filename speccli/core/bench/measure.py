"""One row: put the load on one server, and make numbers of what came back."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any, Protocol

from speccli.core.bench import account, load
from speccli.core.bench.client import Answer, Ask
from speccli.core.bench.datasets import Prompt, Prompts
from speccli.core.bench.gpu import Watch
from speccli.core.bench.results import Row, RowClient, RowState, Samples, Structured
from speccli.core.bench.server import Identity, Page, Server, grown_by
from speccli.core.bench.spread import spread
from speccli.core.values import Number

_IDLE_S = 5.0
"""How long a row waits for a server that is still busy with something else."""
_BUSY_SHARE = 0.9
"""Of one core: the event loop has no time left."""
_LATE_S = 0.005
_LATE_SHARE = 0.1
"""Of the time to the first token: timers that fire later than that put it into every latency."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What every request asks for."""

    max_tokens: int
    """Unless the answer is made `output_tokens` long."""
    output_tokens: int | None = None
    """Every answer exactly this long."""
    temperature: float = 0.0
    top_p: float | None = None
    api: str = "chat"
    extra: Mapping[str, Any] | None = None
    request_seeds: bool = False
    """Each request carries a seed, of its prompt, the bench's seed and the repeat."""

    @property
    def longest(self) -> int:
        """Tokens of the longest answer."""
        return self.output_tokens or self.max_tokens


@dataclass(frozen=True, slots=True)
class Key:
    """Which row it is."""

    arm: str
    dataset: str
    batch: int | None
    rate: float | None
    repeat: int

    def matches(self, row: Row) -> bool:
        """Whether it is this row."""
        return row.key == (self.arm, self.batch, self.rate, self.dataset, self.repeat)

    def empty(self, state: RowState, reason: str) -> Row:
        """The row without numbers."""
        return Row(
            self.arm,
            self.batch,
            self.rate,
            self.dataset,
            self.repeat,
            state,
            reason,
            started=now(),
            contaminated_reason=reason or None,
        )


class Requests:
    """The requests of a row by number: warm-up first, then the measured ones, then fillers.

    The measured ones are the dataset's first, in its order, the same for every arm. Warm-up and
    fillers are others where there are others.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        shape: load.Shape,
        sampling: Sampling,
        identity: Identity,
        salt: str,
    ) -> None:
        self._prompts = prompts
        self._shape = shape
        self._sampling = sampling
        self._identity = identity
        self._salt = salt
        self._measured = shape.requests if shape.requests is not None else len(prompts)

    def __getitem__(self, number: int) -> Ask:
        """The request of this number."""
        place = number - self._shape.warmup
        count = len(self._prompts)
        if place < 0:
            place += self._measured + self._shape.warmup  # after the measured ones
        elif self._shape.requests is not None and place >= self._measured:
            place += self._shape.warmup
        prompt = self._prompts[place % count]
        body = self._body(prompt, place // count)
        return Ask(prompt.id, body, structured=prompt.schema is not None)

    def _body(self, prompt: Prompt, again: int) -> bytes:
        sampling = self._sampling
        body: dict[str, Any] = {"model": self._identity.model}
        if sampling.api == "chat":
            body["messages"] = [dict(message) for message in prompt.messages]
        else:
            body["prompt"] = prompt.text
        body |= {
            "max_tokens": sampling.longest,
            "temperature": sampling.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if sampling.top_p is not None:
            body["top_p"] = sampling.top_p
        if sampling.output_tokens is not None:
            body["ignore_eos"] = True
            if self._identity.kind != "vllm":
                # vLLM needs no more than that, and would mask the end token at every step.
                body["min_tokens"] = sampling.output_tokens
        if sampling.request_seeds:
            body["seed"] = _seed(f"{self._shape.seed}:{prompt.id}:{again}")
        if prompt.schema is not None:
            named = {"name": "answer", "schema": prompt.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        if self._identity.kind == "vllm":
            # No row finds the prompts of another one in the prefix cache.
            body["cache_salt"] = f"{self._salt}-{again}"
        return json.dumps(body | dict(sampling.extra or {})).encode()


def _seed(words: str) -> int:
    """A number that every server takes: 31 bits."""
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:4]) >> 1


class MeasureRow(Protocol):
    """What puts the load of a row on a server; `measure`, or another tool."""

    async def __call__(
        self,
        server: Server,
        identity: Identity,
        key: Key,
        prompts: Prompts,
        shape: load.Shape,
        sampling: Sampling,
        *,
        watch: Watch,
        salt: str,
        progress: Callable[[int, int], None],
    ) -> tuple[Row, list[Answer]]:
        """The row and its measured answers. Never raises but when cancelled."""


def now() -> str:
    """RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds")


async def measure(
    server: Server,
    identity: Identity,
    key: Key,
    prompts: Prompts,
    shape: load.Shape,
    sampling: Sampling,
    *,
    watch: Watch,
    salt: str,
    progress: Callable[[int, int], None],
) -> tuple[Row, list[Answer]]:
    """The row and its measured answers. Never raises but when cancelled."""
    if why := await server.gone():
        return key.empty("failed", why), []
    before = await idle(server)
    started = now()
    asks = Requests(prompts.prompts, shape, sampling, identity, salt)
    async with watch:
        outcome = await load.run(server.client.ask, asks, shape, progress=progress)
        every = list(outcome.answers)
        ours = account.ours(every, sampling.longest)
        after = await server.settled(before, ours.tokens)
    growth = grown_by(before, after)
    whose = account.traffic(growth, ours, simulated=identity.simulated)
    good = [answer for answer in outcome.measured if answer.ok]
    gpu = watch.between(outcome.opened, outcome.closed)
    row = replace(
        key.empty(*_state(outcome, whose.foreign)),
        started=started,
        requests=len(good),
        errors=len(outcome.measured) - len(good),
        error_kinds=Counter(a.error for a in outcome.measured if a.error is not None),
        contaminated=None if whose.missing else whose.foreign is not None,
        contaminated_reason=whose.missing,
        acceptance=account.acceptance(outcome.measured, every, growth, whose),
        gpu_utilisation=gpu.utilisation,
        power_w=gpu.power_w,
        sm_clock_mhz=gpu.sm_clock_mhz,
        energy_j=gpu.energy_j,
        energy_j_per_token=_a_token(gpu.energy_j, outcome.tokens),
        structured=_structured(good),
    )
    return (_with_times(row, outcome, good) if good else row), good


def _a_token(energy_j: Number, tokens: float) -> Number:
    if energy_j.value is None or tokens <= 0:
        return Number.unknown(energy_j.reason or "no tokens")
    return Number.known(energy_j.value / tokens, n=tokens, reason=energy_j.reason)


def _structured(good: Sequence[Answer]) -> Structured | None:
    """Of answers that a schema held; None where there are none."""
    held = [answer for answer in good if answer.parsed is not None]
    if not held:
        return None
    return Structured(
        len(held), sum(bool(a.parsed) for a in held), sum(answer.cut_off for answer in held)
    )


async def idle(server: Server) -> Page:
    """The counters before the row, once the server has nothing left to do."""
    page = await server.page()
    left = _IDLE_S
    while page.busy and left > 0:
        await asyncio.sleep(0.25)
        left -= 0.25
        page = await server.page()
    return page


def _state(outcome: load.Outcome, foreign: str | None) -> tuple[RowState, str]:
    measured = outcome.measured
    failed = [answer for answer in measured if not answer.ok]
    if outcome.gave_up:
        return "failed", f"the server went away: {outcome.gave_up}"
    if not measured or len(failed) == len(measured):
        first = next((a.error for a in outcome.answers if a.error), "nothing was sent")
        return "failed", f"no request was answered: {first}"
    if foreign:
        return "contaminated", foreign
    if failed:
        commonest = Counter(a.error for a in failed).most_common(1)[0][0]
        return "partial", f"{len(failed)} of {len(measured)} requests failed: {commonest}"
    return "ok", ""


def _with_times(row: Row, outcome: load.Outcome, good: Sequence[Answer]) -> Row:
    seconds = outcome.seconds
    tokens = outcome.tokens
    gaps = [
        later - earlier
        for answer in good
        for earlier, later in zip(answer.arrivals, answer.arrivals[1:], strict=False)
    ]
    asked = [answer.prompt for answer in good]
    rate = Number.known(tokens / seconds, n=tokens) if seconds > 0 else Number.unknown("no window")
    return replace(
        row,
        reason=row.reason or None,
        duration_s=round(seconds, 6),
        output_tokens=sum(answer.output_tokens for answer in good),
        input_tokens=sum(answer.input_tokens for answer in good),
        output_tokens_per_s=rate,
        ttft_s=spread([answer.ttft for answer in good], prompts=asked),
        tpot_s=spread([answer.tpot for answer in good if answer.tpot is not None], prompts=asked),
        e2e_s=spread([answer.e2e for answer in good], prompts=asked),
        chunk_gap_s=spread(gaps, independent=False),
        client=_client(outcome, good),
        samples=_samples(good),
    )


def _client(outcome: load.Outcome, good: Sequence[Answer]) -> RowClient | None:
    """What the load generator cost, and whether it was the bottleneck."""
    if outcome.seconds <= 0:
        return None
    share = outcome.cpu_s / outcome.seconds
    lags = sorted(outcome.lags)
    lag = lags[int(0.99 * (len(lags) - 1))] if lags else None
    sent_late = sorted(answer.sent - answer.due for answer in good)
    late = sent_late[int(0.99 * (len(sent_late) - 1))]
    limit = max(_LATE_S, _LATE_SHARE * median(answer.ttft for answer in good))
    reasons = []
    if share > _BUSY_SHARE:
        reasons.append(f"it used {100 * share:.0f} % of a core")
    if lag is not None and lag > limit:
        reasons.append(f"its timers fired {1000 * lag:.0f} ms late (p99): a busy machine")
    if late > limit:
        reasons.append(f"it sent requests {1000 * late:.0f} ms late (p99)")
    return RowClient(
        cpu_s=round(outcome.cpu_s, 6),
        cpu_share=round(share, 6),
        loop_lag_p99_s=None if lag is None else round(lag, 6),
        saturated=bool(reasons),
        reason=", ".join(reasons) or None,
    )


def _samples(good: Sequence[Answer]) -> Samples:
    origin = min(answer.due for answer in good)
    ordered = sorted(good, key=lambda answer: answer.due)
    told = [answer.speculation for answer in ordered]
    given = any(each is not None for each in told)

    def counts(name: str) -> tuple[int, ...] | None:
        if not given:
            return None
        values = ((each or {}).get(name) for each in told)
        return tuple(value if isinstance(value, int) else 0 for value in values)

    return Samples(
        prompt=tuple(answer.prompt for answer in ordered),
        start_s=tuple(round(answer.due - origin, 6) for answer in ordered),
        ttft_s=tuple(round(answer.ttft, 6) for answer in ordered),
        e2e_s=tuple(round(answer.e2e, 6) for answer in ordered),
        output_tokens=tuple(answer.output_tokens for answer in ordered),
        input_tokens=tuple(answer.input_tokens for answer in ordered),
        text_sha=tuple(answer.text_sha for answer in ordered),
        accepted=counts("num_accepted_draft_tokens"),
        drafted=counts("num_draft_tokens"),
        steps=counts("num_spec_steps"),
    )
