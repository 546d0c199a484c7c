"""Recordings made by hand, in the contract's form, and what `specctl status` says of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from speccli.main import app

AT = 1_795_975_200.0
"""When the recordings begin, Unix seconds."""
HOST = "http://10.0.0.7:8000"
SPEC = "vllm:spec_decode_num_"


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def fleet(self) -> dict[str, Any]:
        fleet: dict[str, Any] = self.json["fleet"]
        return fleet

    @property
    def engine(self) -> dict[str, Any]:
        (engine,) = self.json["engines"]
        found: dict[str, Any] = engine
        return found

    def findings(self, code: str) -> list[dict[str, Any]]:
        return [each for each in self.json["findings"] if each["code"] == code]


def specctl(*args: str | Path) -> Answer:
    """The command line, in this process."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
    return Answer(result.exit_code, result.stdout, result.stderr)


def header(**changes: Any) -> dict[str, Any]:
    """The first line."""
    usual = {
        "schema": "specctl.recording/v1",
        "created": "2026-11-29T18:00:00+00:00",
        "interval_s": 60.0,
        "source": "scrape",
        "simulated": False,
    }
    return {**usual, **changes}


def scraped(at: float, body: str, target: str = HOST, **more: Any) -> dict[str, Any]:
    """An answer, `at` seconds after the beginning."""
    return {"at": AT + at, "target": target, "status": 200, "body": body, **more}


def failed(at: float, error: str, target: str = HOST) -> dict[str, Any]:
    """No answer."""
    return {"at": AT + at, "target": target, "error": error}


def written(path: Path, lines: Iterable[dict[str, Any]], **header_: Any) -> Path:
    """A recording on disk."""
    text = "".join(json.dumps(line) + "\n" for line in (header(**header_), *lines))
    path.write_text(text, encoding="utf-8")
    return path


def counter(name: str, *series: tuple[str, float]) -> str:
    """A counter family; each series is its labels after `model_name` and its value."""
    samples = [f'{name}{{model_name="m"{labels}}} {value}\n' for labels, value in series]
    return f"# TYPE {name} counter\n{''.join(samples)}"


def gauge(name: str, *series: tuple[str, float]) -> str:
    """A gauge family."""
    return counter(name, *series).replace(" counter\n", " gauge\n", 1)


def histogram(name: str, bounds: Sequence[str], counts: Sequence[float], total: float) -> str:
    """A histogram family; `counts` are cumulative, one more than `bounds`."""
    buckets = zip((*bounds, "+Inf"), counts, strict=True)
    lines = [f'{name}_bucket{{model_name="m",le="{le}"}} {n}\n' for le, n in buckets]
    lines += [f'{name}_sum{{model_name="m"}} {total}\n', f'{name}_count{{model_name="m"}} ']
    return f"# TYPE {name} histogram\n{''.join(lines)}{counts[-1]}\n"


def speculation(
    drafted: float,
    accepted: float,
    drafts: float,
    positions: Sequence[float] = (),
    labels: str = "",
) -> str:
    """The speculation families of one engine."""
    text = counter(f"{SPEC}draft_tokens_total", (labels, drafted))
    text += counter(f"{SPEC}accepted_tokens_total", (labels, accepted))
    text += counter(f"{SPEC}drafts_total", (labels, drafts))
    if positions:
        series = [(f'{labels},position="{i}"', n) for i, n in enumerate(positions)]
        text += counter(f"{SPEC}accepted_tokens_per_pos_total", *series)
    return text
