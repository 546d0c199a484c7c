"""How long `specctl alert check --replay` takes to see each shift that `drift GROUP` recorded.

    python benchmarks/lab/delay.py RESULTS GROUP [OUT]

RESULTS holds GROUP-drift.jsonl.gz, GROUP-drift.json and GROUP-drift-PHASE.json of each phase. The
first phase is the baseline. Each other phase is cut out of the recording, with the known traffic
before it where its prompts are other ones, and judged as a cron run would have, a look of drift
every 3 s, and not before 200 drafts. OUT gets, of each: drafts and acceptance by the server's
counters, and when it was told, in seconds and drafts since the phase began.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from usage import Parser, read_object, run  # noqa: E402

from speccli.core.errors import UsageError  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CODE = "ACCEPTANCE_DRIFT"
EVERY = "3s"
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
            cut = state / "cut.jsonl.gz"
            within = [x for x in lines if start["began"] <= x.at <= phase["ended"]]
            _write(cut, header, within)
            told.append(_phase(phase, within, alerts(state, cut)))
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


def _write(cut: Path, header: str, lines: Sequence[Line]) -> None:
    with gzip.open(cut, "wt", encoding="utf-8") as file:
        file.write(header + "".join(line.text for line in lines))


def alerts(state: Path, cut: Path) -> list[tuple[float, dict[str, Any]]]:
    """When drift began to be told in a recording, and what was said."""
    replay = ("alert", "check", "--replay", str(cut), "--baseline", "known", "--force")
    told = json.loads(specctl(state, *replay, "-o", "json"))
    return [
        (datetime.fromisoformat(turn["at"]).timestamp(), change)
        for turn in told.get("history") or []
        for change in turn["changes"]
        if change.get("code") == CODE and change["change"] == "firing"
    ]


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
    phase: Mapping[str, Any], lines: Sequence[Line], fired: Sequence[tuple[float, dict[str, Any]]]
) -> dict[str, Any]:
    own = [line for line in lines if line.at >= phase["began"]]
    before = [line for line in lines if line.at < phase["began"]]
    told: dict[str, Any] = {"phase": phase["phase"], "dataset": phase["dataset"], **_grown(own)}
    told["known_before"] = _grown(before) if before else None
    told["early"] = [at - phase["began"] for at, _ in fired if at < phase["began"]]
    after = [(at, change) for at, change in fired if at >= phase["began"]]
    if not after:
        return told | {"fired": None}
    at, change = after[0]
    until = [line for line in own if line.at <= at + 0.01]
    said = {key: change.get(key) for key in ("severity", "evidence", "cause")}
    return told | {
        "fired": {
            "after_s": round(at - phase["began"], 1),
            "after_drafts": _grown(until)["drafts"],
            **said,
        }
    }


def _grown(lines: Sequence[Line]) -> dict[str, Any]:
    if len(lines) < 2:
        return {"seconds": 0.0, "drafts": 0, "drafted": 0, "accepted": 0}
    first, last = lines[0], lines[-1]
    grown = {name: round(last.counts[name] - first.counts[name]) for name in COUNTERS}
    return {"seconds": round(last.at - first.at, 1), **grown}


if __name__ == "__main__":
    run("delay", main)
