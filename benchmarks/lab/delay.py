"""How long `specctl alert check --replay` takes to see each shift that `drift GROUP` recorded.

    python benchmarks/lab/delay.py RESULTS GROUP [OUT]

RESULTS holds GROUP-drift.jsonl.gz, GROUP-drift.json and GROUP-drift-PHASE.json of each phase. The
first phase is the baseline. Each other phase is cut out of the recording, with the known traffic
before it where its prompts are other ones, and judged as a cron run would have, a look of drift
every 3 s, and not before 200 drafts. OUT gets, of each: drafts and acceptance by the server's
counters, when the fall was seen at all, and when it was a finding that changes the exit code, in
seconds and drafts since the phase's first draft.

Exit codes: 0 written, 3 something cannot be told, 64 usage.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from usage import Parser, read_object, run  # noqa: E402

from speccli.core.errors import UsageError  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CODE = "ACCEPTANCE_DRIFT"
EVERY = "3s"
EACH = 6
"""Every so many scrapes is judged; where something changed, each of those between."""
COUNTERS = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}


@dataclass(frozen=True)
class Line:
    """A line of a recording."""

    at: float
    counts: Mapping[str, float]
    text: str


def main(arguments: list[str]) -> int:
    """As the module says."""
    parser = Parser("delay", str(__doc__))
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT")
    asked = parser.parse_args(arguments)
    told = judged(asked.results, asked.group)
    text = json.dumps(told, indent=1) + "\n"
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


def judged(results: Path, group: str) -> dict[str, Any]:
    """Every phase but the first.

    Raises:
        UsageError: there is no such recording, or no baseline can be made of its first phase.
    """
    phases = read_object(results / f"{group}-drift.json", "a drift's phases").get("phases") or []
    header, lines = recorded(results / f"{group}-drift.jsonl.gz")
    if len(phases) < 2:
        raise UsageError(f"{group}-drift.json: no phases")
    first = phases[0]
    told = []
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch)
        bench = results / f"{group}-drift-{first['phase']}.json"
        specctl(state, "baseline", "import", str(bench), "--arm", "eagle3", "--name", "known")
        for before, phase in zip(phases, phases[1:], strict=False):
            start = before if _known(before, first) and not _known(phase, first) else phase
            within = [x for x in lines if start["began"] <= x.at <= phase["ended"]]
            told.append(_phase(state, header, phase, within))
    return {
        "every": EVERY,
        "baseline": {"phase": first["phase"], "dataset": first["dataset"]}
        | _grown([x for x in lines if first["began"] <= x.at <= first["ended"]]),
        "phases": told,
    }


def _known(phase: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    return bool(phase["dataset"] == first["dataset"] and phase.get("more") == first.get("more"))


def recorded(file: Path) -> tuple[str, list[Line]]:
    """The header, and every scrape that has the counters."""
    if not file.exists():
        raise UsageError(f"no recording in {file}: run drift first")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        header = next(lines)
        return header, [line for line in map(_line, lines) if line is not None]


def _line(text: str) -> Line | None:
    told = json.loads(text)
    body = str(told.get("body") or "")
    counts = {}
    for name, series in COUNTERS.items():
        found = re.findall(rf"^{series}(?:{{[^}}]*}})? (\S+)$", body, re.MULTILINE)
        if not found:
            return None
        counts[name] = sum(map(float, found))
    return Line(float(told["at"]), counts, text)


def drift_of(state: Path, header: str, lines: Sequence[Line]) -> dict[str, Any] | None:
    """What `alert check` says of drift at the end of these scrapes; None: nothing."""
    cut = state / "cut.jsonl.gz"
    with gzip.open(cut, "wt", encoding="utf-8") as file:
        file.write(header + "".join(line.text for line in lines))
    replay = ("alert", "check", "--replay", str(cut), "--baseline", "known", "--force")
    told = json.loads(specctl(state, *replay, "-o", "json"))
    return next((each for each in told["findings"] if each["code"] == CODE), None)


def specctl(state: Path, *words: str) -> str:
    """What a command prints.

    Raises:
        UsageError: it could not do it.
    """
    env = {**os.environ, "SPECCTL_STATE": str(state), "SPECCTL_DRIFT_EVERY": EVERY}
    command = [sys.executable, "-m", "speccli", *words]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 2):
        raise UsageError(f"specctl {words[0]} {words[1]}: {done.stderr.strip() or done.stdout}")
    return done.stdout


def _phase(
    state: Path, header: str, phase: Mapping[str, Any], lines: Sequence[Line]
) -> dict[str, Any]:
    own = [line for line in lines if line.at >= phase["began"]]
    before = [line for line in lines if line.at < phase["began"]]
    while len(own) > 1 and own[1].counts["drafts"] == own[0].counts["drafts"]:
        before.append(own.pop(0))
    told: dict[str, Any] = {"phase": phase["phase"], "dataset": phase["dataset"], **_grown(own)}
    judged_: dict[int, dict[str, Any] | None] = {}

    def at(n: int) -> dict[str, Any] | None:
        if n not in judged_:
            judged_[n] = drift_of(state, header, [*before, *own[: n + 1]])
        return judged_[n]

    def first(wanted: Callable[[dict[str, Any] | None], bool]) -> dict[str, Any] | None:
        rough = [*range(EACH, len(own) - 1, EACH), len(own) - 1]
        end = next((n for n in rough if wanted(at(n))), None)
        if end is None:
            return None
        n = next(n for n in range(max(0, end - EACH) + 1, end + 1) if wanted(at(n)))
        found = at(n) or {}
        since = {"after_s": round(own[n].at - own[0].at, 1), **_grown(own[: n + 1])}
        kept = {"after_s": since["after_s"], "after_drafts": since["drafts"]}
        return kept | {key: found[key] for key in ("severity", "evidence", "cause")}

    seen = first(lambda found: found is not None)
    fired = first(lambda found: found is not None and found["severity"] != "info") if seen else None
    return {**told, "seen": seen, "fired": fired}


def _grown(lines: Sequence[Line]) -> dict[str, Any]:
    if len(lines) < 2:
        return {"seconds": 0.0, "drafts": 0, "drafted": 0, "accepted": 0}
    first, last = lines[0], lines[-1]
    grown = {name: round(last.counts[name] - first.counts[name]) for name in COUNTERS}
    return {"seconds": round(last.at - first.at, 1), **grown}


if __name__ == "__main__":
    run("delay", main)
