"""How long answers were, where a length was asked for: `--output-tokens` is a wish.

A server ends an answer where its context ends, and one that knows no `ignore_eos` wherever the
model does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from speccli.core.bench.results import Result, Row


def lengths(result: Result) -> str | None:
    """What was asked of every answer and what was made; None where no length was asked for."""
    asked = result.load.output_tokens
    if asked is None:
        return None
    off = other_lengths(result)
    if off is not None:
        return off
    if all(_tokens(row) for row in result.rows if row.usable):
        return f"every answer was made {asked} tokens long (ignore_eos)"
    return (
        f"every answer was to be {asked} tokens long (ignore_eos); how long they were is not told"
    )


def other_lengths(result: Result) -> str | None:
    """Which arms' answers are not as long as was asked, and how long they are; None: all are."""
    asked = result.load.output_tokens
    if asked is None:
        return None
    told = [
        words
        for arm in result.arms
        if (words := _of(arm.name, result.rows_of(arm.name), asked)) is not None
    ]
    if not told:
        return None
    return f"answers were to be {asked} tokens long and are not: {', '.join(told)}"


def _of(arm: str, rows: Sequence[Row], asked: int) -> str | None:
    """`3 of 96 of eagle3 (17 to 127)`; where single answers are not known, of their means."""
    single = [n for row in rows for n in row.samples.output_tokens]
    if single:
        off = [n for n in single if n != asked]
        return f"{len(off)} of {len(single)} of {arm} ({_span(off)})" if off else None
    means = [n for row in rows for n in _tokens(row)]
    off_by_row = [n for n in means if n != asked]
    return f"{arm}'s in the mean ({_span(off_by_row)})" if off_by_row else None


def _tokens(row: Row) -> Sequence[float]:
    """Of each answer, or their mean, or nothing where neither is known."""
    if row.samples.output_tokens:
        return row.samples.output_tokens
    if row.output_tokens is None or not row.requests:
        return ()
    return (row.output_tokens / row.requests,)


def _span(lengths_: Iterable[float]) -> str:
    found = sorted(lengths_)
    low, high = f"{found[0]:g}", f"{found[-1]:g}"
    return low if low == high else f"{low} to {high}"
