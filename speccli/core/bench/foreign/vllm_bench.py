"""`vllm bench serve --save-result [--save-detailed]`: one file a run, or one of JSON lines.

Two traps. `spec_decode_acceptance_rate` is in percent and the rates by position are fractions, so
the rate is made of the counts. And the counts are of the whole server while the bench ran: other
traffic is in them, and nothing in the file would tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from speccli.core.bench.foreign.level import Fields, Latencies, Level, latencies, summary, text_sha
from speccli.core.bench.results import Acceptance, Samples, Spread
from speccli.core.bench.spread import spread
from speccli.core.errors import UsageError
from speccli.core.values import Number

_OTHERS = "counted by the server: other traffic would be in it"
_FULL = 0.9
"""Share of K that drafts must reach for positions to share one denominator."""


def matches(document: Any) -> bool:
    """Whether it looks like one."""
    return isinstance(document, Mapping) and {"output_throughput", "max_concurrency"} <= set(
        document
    )


def read(document: Mapping[str, Any], where: str) -> Level:
    """The run in a result.

    Raises:
        UsageError: a number is missing, or the load is neither a concurrency nor a rate.
    """
    fields = Fields(document, where)
    completed = int(fields.number("completed"))
    batch, rate = _load(fields)
    samples, kinds, gaps = _samples(fields)
    each = latencies(samples, gaps) if samples.prompt else _summaries(fields, completed, gaps)
    return Level(
        tool="vllm-bench",
        version=None,
        where=where,
        model=fields.text("model_id"),
        endpoint=None,
        batch=batch,
        rate=rate,
        started=_started(fields.text("date")),
        duration_s=fields.number("duration"),
        requests=completed,
        errors=int(fields.maybe("failed") or 0),
        error_kinds=kinds,
        output_tokens=int(fields.number("total_output_tokens")),
        input_tokens=int(fields.number("total_input_tokens")),
        output_tokens_per_s=fields.number("output_throughput"),
        samples=samples,
        latencies=each,
        acceptance=_acceptance(fields),
        told={key: value for key in ("arm", "method", "dataset") if (value := fields.text(key))},
    )


def _load(fields: Fields) -> tuple[int | None, float | None]:
    rate, concurrency = fields.maybe("request_rate"), fields.maybe("max_concurrency")
    if rate is not None:
        return None, rate
    if concurrency is None or concurrency < 1:
        raise UsageError(
            f"{fields.where} was run without --max-concurrency and without --request-rate",
            hint="everything at once is no batch size; run it with --max-concurrency",
        )
    return int(concurrency), None


def _started(date: str | None) -> str | None:
    try:
        return datetime.strptime(date or "", "%Y%m%d-%H%M%S").replace(tzinfo=UTC).isoformat()
    except ValueError:
        return None


def _samples(fields: Fields) -> tuple[Samples, Mapping[str, int], Spread]:
    """Single requests, in the order of the prompts; failed ones are counted and left out."""
    ttfts = fields.at("ttfts")
    if not isinstance(ttfts, list) or not ttfts:
        return Samples(), {}, Spread.unknown("run with --save-detailed")
    n = len(ttfts)
    ttft, out, into = (fields.numbers(each, n) for each in ("ttfts", "output_lens", "input_lens"))
    itls, errors, texts = fields.at("itls"), fields.at("errors"), fields.at("generated_texts")
    if ttft is None or out is None or into is None or not isinstance(itls, list) or len(itls) != n:
        raise UsageError(f"{fields.where}: its lists of single requests are not whole")
    e2e = fields.numbers("latencies", n)  # newer than the other lists
    e2e = e2e or [t + sum(gaps) for t, gaps in zip(ttft, itls, strict=True)]
    starts = fields.numbers("start_times", n)
    errors = errors if isinstance(errors, list) and len(errors) == n else [""] * n
    texts = texts if isinstance(texts, list) and len(texts) == n else None
    good = [i for i in range(n) if not errors[i] and out[i] > 0]
    origin = min((starts[i] for i in good), default=0.0) if starts else 0.0
    samples = Samples(
        prompt=tuple(f"{i}" for i in good),
        start_s=tuple(starts[i] - origin for i in good) if starts else (),
        ttft_s=tuple(float(ttft[i]) for i in good),
        e2e_s=tuple(float(e2e[i]) for i in good),
        output_tokens=tuple(int(out[i]) for i in good),
        input_tokens=tuple(int(into[i]) for i in good),
        text_sha=tuple(text_sha(str(texts[i])) for i in good) if texts else (),
    )
    kinds = Counter(str(each).strip().splitlines()[-1][:120] for each in errors if each)
    gaps = [float(gap) for i in good for gap in itls[i]]
    return samples, kinds, spread(gaps, independent=False)


def _summaries(fields: Fields, n: int, gaps: Spread) -> Latencies:
    def of(name: str) -> Spread:
        p50, p95, p99 = (fields.maybe(f"p{q}_{name}_ms") for q in (50, 95, 99))
        middle = p50 if p50 is not None else fields.maybe(f"median_{name}_ms")
        return summary([middle, p95, p99, fields.maybe(f"mean_{name}_ms")], n)

    return Latencies(of("ttft"), of("tpot"), of("e2el"), gaps)


def _acceptance(fields: Fields) -> Acceptance:
    drafts, drafted, accepted = (
        fields.maybe(f"spec_decode_{name}")
        for name in ("num_drafts", "draft_tokens", "accepted_tokens")
    )
    if not drafts or not drafted or accepted is None:
        return Acceptance.unknown("the file holds no acceptance: no speculation, or no /metrics")
    if not 0 <= accepted <= drafted:
        raise UsageError(f"{fields.where}: {accepted:g} tokens accepted of {drafted:g} drafted")
    rates = fields.at("spec_decode_per_position_acceptance_rates")
    positions = [x for x in rates if isinstance(x, int | float)] if isinstance(rates, list) else []
    if any(not 0 <= x <= 1 for x in positions):
        raise UsageError(f"{fields.where}: acceptance by position outside 0..1")
    n, k = int(drafts), len(positions)
    vary = k and drafted < _FULL * drafts * k
    return Acceptance(
        source="counters",
        rate=Number.known(accepted / drafted, n=drafted, reason=_OTHERS),
        length=Number.known(1 + accepted / drafts, n=drafts, reason=_OTHERS),
        by_position=tuple(
            Number.unknown("draft lengths vary", n=n) if vary and i else Number.known(x, n=n)
            for i, x in enumerate(positions)
        ),
        tokens_per_step=Number.unknown("the file does not tell the steps"),
        drafts=n,
        draft_tokens=int(drafted),
        accepted_tokens=int(accepted),
    )
