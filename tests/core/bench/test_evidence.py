"""The tables of docs/bench.md are those of the results that are kept."""

from __future__ import annotations

import gzip
import json
import re
from math import sqrt
from pathlib import Path
from statistics import mean

import pytest

from speccli.core.bench.compare import compare
from speccli.core.bench.form import read
from speccli.core.bench.results import Result, Row
from speccli.core.bench.schedule import schedule
from speccli.core.bench.student import quantile

DOCS = Path(__file__).parents[3] / "docs"
H200 = DOCS / "evidence" / "bench-h200-8b.json"
CPU = DOCS / "evidence" / "bench-cpu-135m.json"


def h200_lines(result: Result) -> list[str]:
    """A line a batch."""
    cells = {(cell.arm, cell.batch): cell for cell in compare(result).cells}

    def rows(arm: str, batch: int) -> list[Row]:
        return [row for row in result.rows_of(arm) if row.batch == batch]

    def tokens(arm: str, batch: int) -> str:
        return f"{mean(row.output_tokens_per_s.value or 0 for row in rows(arm, batch)):,.0f}"

    def tpot(arm: str, batch: int) -> str:
        return f"{1000 * mean(row.tpot_s.p50.value or 0 for row in rows(arm, batch)):.2f}"

    def speedup(arm: str, batch: int) -> str:
        told = cells[arm, batch].speedup
        return f"{told.value:.2f} [{told.low:.2f}, {told.high:.2f}]"

    def accepted(batch: int) -> str:
        return f"{mean(r.acceptance.rate.value or 0 for r in rows('eagle3', batch)):.3f}"

    return [
        f"| {batch} | {tokens('baseline', batch)} | {tokens('eagle3', batch)} "
        f"| {speedup('eagle3', batch)} | {tpot('baseline', batch)} → {tpot('eagle3', batch)} "
        f"| {accepted(batch)} | {tokens('ngram', batch)} | {speedup('ngram', batch)} |"
        for batch in result.load.batches
    ]


@pytest.mark.parametrize("batch", [1, 8, 32, 64, 128])
def test_the_h200_table_is_the_results(batch: int) -> None:
    result = read(H200)
    assert result.stand_in
    line = h200_lines(result)[result.load.batches.index(batch)]
    assert line in (DOCS / "bench.md").read_text().splitlines()


def accepted(row: Row) -> str:
    """The rate, and the half width of its 95 % interval over requests (a ratio of sums)."""
    drafted, taken = row.samples.drafted, row.samples.accepted
    rate = row.acceptance.rate.value
    if not drafted or not taken or rate is None:
        return "—"
    n, whole = len(drafted), sum(drafted)
    apart = sum((a - rate * d) ** 2 for a, d in zip(taken, drafted, strict=True))
    return f"{rate:.3f} ± {quantile(0.025, n - 1) * sqrt(n / (n - 1) * apart) / whole:.3f}"


def cpu_lines(result: Result) -> list[str]:
    """A line a row with a draft."""
    return [
        f"| {row.dataset} | {row.arm} | {row.batch} | {row.requests} | {accepted(row)} "
        f"| {positions(row)} | {row.acceptance.tokens_per_step.value or 0:.2f} |"
        for row in result.rows
        if row.arm != "baseline"
    ]


def positions(row: Row) -> str:
    """Acceptance by position, as far as it is known."""
    known = [each.value for each in row.acceptance.by_position if each.value is not None]
    return " ".join(f"{value:.2f}" for value in known)


def test_the_cpu_table_is_the_results() -> None:
    result = read(CPU)
    assert not result.simulated
    assert {row.state for row in result.rows} == {"ok"}
    lines = set((DOCS / "bench.md").read_text().splitlines())
    assert [line for line in cpu_lines(result) if line not in lines] == []


@pytest.mark.parametrize(
    ("arm", "dataset", "table"),
    [("eagle3", "sharegpt", 0.490), ("eagle3", "humaneval", 0.461), ("p-eagle", "sharegpt", 0.297)],
)
def test_acceptance_is_within_noise_of_the_heads_own_table(
    arm: str, dataset: str, table: float
) -> None:
    row = next(
        r for r in read(CPU).rows_of(arm) if (r.dataset, r.batch) == (dataset, 8) and r.requests
    )
    assert max(row.samples.output_tokens) == 200
    assert abs((row.acceptance.rate.value or 0) - table) < float(accepted(row).split()[-1])


def test_both_turns_of_mtbench_are_the_heads_own_table() -> None:
    (row,) = read(CPU.with_name("bench-cpu-135m-mtbench.json")).rows
    counted = row.acceptance.counters
    assert counted is not None
    assert row.acceptance.accepted_tokens == counted.accepted_tokens
    assert accepted(row) in (DOCS / "bench.md").read_text()
    assert abs((row.acceptance.rate.value or 0) - 0.489) < float(accepted(row).split()[-1])


def places_of_a_machine(file: Path) -> set[str]:
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    return set(re.findall(r"/(?:home|mnt|opt|root|srv|tmp|usr|var|work)/[^\s\"]*", text))


@pytest.mark.parametrize("folder", ["evidence", "report"])
def test_no_path_of_a_machine_is_kept(folder: str) -> None:
    files = [path for path in (DOCS / folder).rglob("*") if path.is_file()]
    assert files
    found = {str(path.relative_to(DOCS)): places_of_a_machine(path) for path in files}
    assert {name: places for name, places in found.items() if places} == {}


def test_what_answers_told_on_the_cpu_is_what_the_counters_showed() -> None:
    told = [row for row in read(CPU).rows if row.acceptance.source == "per-request"]
    assert {row.arm for row in told} == {"eagle3", "p-eagle", "ngram"}
    assert [row.label for row in told if row.acceptance.rate.reason is not None] == []
    for row in told:
        counted = row.acceptance.counters
        assert counted is not None
        if row.batch == 1:  # no fillers: every request of the row is a measured one
            assert row.acceptance.drafts == counted.drafts
            assert row.acceptance.accepted_tokens == counted.accepted_tokens


def test_sampling_on_the_cpu_is_the_table() -> None:
    told = json.loads(CPU.with_name("bench-cpu-135m-sampled.json").read_text())
    rates: dict[tuple[object, ...], str] = {}
    drafted = [row["draft_tokens"] for row in told["rows"]]
    for row in told["rows"]:
        rate = f"{row['accepted_tokens'] / row['draft_tokens']:.3f}"
        kind = (row["arm"], row["endpoint"], row["seeds"], row["temperature"])
        rates[(*kind, row["replaced"])] = rate
    page = (DOCS / "bench.md").read_text()
    _, _, section = page.partition("### Sampling with a draft on vLLM 0.32 for CPUs")
    table = [line for line in section.partition("\n### ")[0].splitlines() if "| 0." in line]

    def line(name: str, *kind: object) -> str:
        replaced = rates.pop((*kind, True), "")
        return f"| {name} | {rates.pop((*kind, False))} | {replaced} |".replace("|  |", "| |")

    greedy = {
        "completions": rates.pop(("eagle3", "completions", False, 0.0, False)),
        "n-gram": rates.pop(("ngram", "chat", False, 0.0, False)),
    }
    assert table == [
        line("0", "eagle3", "chat", False, 0.0),
        line("0.01", "eagle3", "chat", False, 0.01),
        line("0.7", "eagle3", "chat", False, 0.7),
        line("0.7, a seed in each request", "eagle3", "chat", True, 0.7),
        line(f"0.7, completions (0: {greedy['completions']})", "eagle3", "completions", False, 0.7),
        line("1.0", "eagle3", "chat", False, 1.0),
        line("2.0", "eagle3", "chat", False, 2.0),
        line(f"0.7, n-gram (0: {greedy['n-gram']})", "ngram", "chat", False, 0.7),
    ]
    assert rates == {}
    assert f"({min(drafted)} to {max(drafted):,} drafted each)" in section


def test_the_sweep_of_k_is_the_table_and_the_k_that_is_emitted() -> None:
    result = read(CPU.with_name("bench-cpu-135m-k.json"))
    assert {row.state for row in result.rows} == {"ok"}
    found = schedule(result, max_num_seqs=16)
    lines = (DOCS / "bench.md").read_text().splitlines()
    for each in found.measured:
        told = " | ".join(f"{each.tokens_per_s[k]:.1f}" for k in sorted(found.arms))
        assert f"| {each.batch} | {told} |" in lines
    assert found.rows == ((1, 3, 4), (4, 16, 0))
    assert json.dumps(found.config(), separators=(", ", ": ")) in (DOCS / "bench.md").read_text()


def test_a_schedule_with_a_change_is_of_its_sweep_and_an_engine_kept_to_it() -> None:
    made = schedule(read(DOCS / "evidence" / "bench-cpu-135m-k16.json"), max_num_seqs=16)
    assert made.rows == ((1, 4, 4), (5, 16, 0))
    (change,) = made.changes
    assert (change.at_above.low or 0) > 1.03
    shown = (DOCS / "bench.md").read_text().splitlines()
    for each in made.measured:
        rates = " | ".join(f"{each.tokens_per_s[k]:.0f}" for k in (0, 2, 4))
        assert f"| {each.batch} | {rates} |" in shown
    for row in read(DOCS / "evidence" / "bench-cpu-135m-scheduled.json").rows:
        assert row.batch is not None
        steps, drafted = sum(row.samples.steps or ()), sum(row.samples.drafted or ())
        tokens = sum(row.samples.output_tokens)
        rate = row.output_tokens_per_s.value or 0
        assert f"| {row.batch} | {steps} | {drafted} | {tokens:,} | {rate:.0f} |" in shown
        assert drafted == 4 * steps
        assert (steps > 0.25 * tokens) is (row.batch <= 4), row.batch
