"""Other runs of what a first page tells: where they disagree with it, no reader may miss it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from speccli.core.bench.again import Pair, differences, pairs
from speccli.core.bench.compare import compare
from speccli.core.bench.results import Result
from speccli.core.errors import UsageError
from speccli.core.report.advice import batches, listed
from speccli.core.report.build import Report
from speccli.core.report.sections import Section, Table
from speccli.core.views.bench import load_words, times


@dataclass(frozen=True, slots=True)
class Again:
    """One more run of a model."""

    name: str
    """The model's, on the first page."""
    file: str
    pairs: tuple[Pair, ...]

    @property
    def apart(self) -> list[Pair]:
        """Comparisons that differ by more than both scatters explain."""
        return [pair for pair in self.pairs if pair.agree is False]


def again(
    parts: Sequence[tuple[str, Report]], runs: Mapping[str, Sequence[tuple[Path, Result]]]
) -> tuple[Again, ...]:
    """What other runs say, each by the name of its model.

    Raises:
        UsageError: no model has that name, or a run measured something else.
    """
    known = dict(parts)
    made = []
    for name, files in runs.items():
        report = known.get(name)
        if report is None or report.comparison is None:
            raise UsageError(
                f"--again {name}: no model of that name is compared",
                hint=f"--each has {', '.join(known)}",
            )
        made += [_one(name, report, path, result) for path, result in files]
    return tuple(made)


def _one(name: str, report: Report, path: Path, result: Result) -> Again:
    assert report.comparison is not None
    here = report.comparison
    if told := list(differences(report.result, result)):
        raise UsageError(f"--again {name}: {path} measured something else: {'; '.join(told)}")
    found = pairs(here, compare(result, baseline=here.baseline, target=here.target))
    if not found:
        raise UsageError(f"--again {name}: {path} shares no comparison with it")
    return Again(name, path.name, tuple(found))


def apart(runs: Sequence[Again], name: str) -> Iterator[str]:
    """A sentence for each run of a model that disagrees, with the arms that it disagrees about."""
    for run in runs:
        wrong = run.apart if run.name == name else []
        if wrong:
            said = ", ".join(
                f"{pair.arm} at {pair.second.value:.2f} at {batches([pair.load])} on "
                f"{pair.dataset}, where {pair.first.value:.2f} stands here"
                for pair in wrong
            )
            whose = listed(list(dict.fromkeys(pair.arm for pair in wrong)))
            yield (
                f"Another run had {said}: more than both scatters explain, so take the intervals "
                f"of {whose} as too narrow."
            )


def section(runs: Sequence[Again], marks: Mapping[str, str]) -> Section:
    """All of it as a table: those that disagree first."""
    rows = [
        (
            f"{marks[run.name]} {run.name}",
            pair.arm,
            pair.dataset,
            load_words(pair.load),
            times(pair.first),
            times(pair.second),
            " and ".join(map(str, dict.fromkeys(pair.requests))),
            {True: "agree", False: "APART", None: "not told"}[pair.agree],
            run.file,
        )
        for run in runs
        for pair in sorted(run.pairs, key=lambda each: each.agree is not False)
    ]
    table = Table(
        ("model", "arm", "dataset", "load", "here", "again", "requests a row", "", "file"),
        tuple(rows),
        words=True,
        notes=(
            "APART: the two differ by more than both 95 % intervals together; a run that was "
            "measured once has none, and is taken to scatter as the other does",
        ),
    )
    return Section("again", "Measured again", "", (table,))
