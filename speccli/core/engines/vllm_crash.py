"""What a vLLM that does not start, or ended, says of the reason: causes and fixes by its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from speccli.core.engines import vllm_start
from speccli.core.engines.vllm_crash_table import (
    DRAFT,
    OOM,
    OOM_SERVING,
    OOM_STARTING,
    SIGNATURES,
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why it ended."""

    code: str
    cause: str
    fix: str
    evidence: str
    """The line that tells."""


_OUT_OF_MEMORY = re.compile(
    r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory)[^\n]*"
)
_DRAFTING = "Loading drafter model"
_SERVING = re.compile(r"Application startup complete|Starting vLLM (?:API )?server")


def diagnose(log: str) -> Diagnosis | None:
    """Why a vLLM ended, by the end of its log; None where nothing that is known is in it."""
    if plain := _plain(log, ("GPU_OOM_SAMPLER", "GPU_OOM_WEIGHTS", "GPU_MEMORY_TAKEN")):
        return plain
    if found := _OUT_OF_MEMORY.search(log):
        return Diagnosis(*_where(log[: found.start()]), evidence=_line(log, found.start()))
    plain = _plain(log, ())
    drafting = vllm_start.mark_of(log).text == _DRAFTING
    if drafting and (plain is None or plain.code == "WEIGHTS_MISMATCH"):
        return _of_draft(log, plain)
    return plain


def _of_draft(log: str, plain: Diagnosis | None) -> Diagnosis | None:
    """What went wrong while the draft was loaded is the draft's fault."""
    error = last_error(log)
    if plain is not None:
        return Diagnosis(
            "DRAFT_MISMATCH", f"the draft does not fit: {plain.cause}", DRAFT, plain.evidence
        )
    if error is None:
        return None
    return Diagnosis("DRAFT_MISMATCH", f"the draft could not be loaded: {error}", DRAFT, error)


def _where(before: str) -> tuple[str, str, str]:
    """Code, cause and fix of an out-of-memory, by how far the log had come."""
    if _SERVING.search(before):
        return OOM_SERVING
    mark = vllm_start.mark_of(before)
    return OOM.get(mark.text, OOM_STARTING)


def _plain(log: str, codes: tuple[str, ...]) -> Diagnosis | None:
    for signature in SIGNATURES:
        if codes and signature.code not in codes:
            continue
        if (found := signature.pattern.search(log)) is not None:
            words = _Words({k: v.strip() for k, v in found.groupdict().items() if v})
            return Diagnosis(
                signature.code,
                signature.cause.format_map(words),
                signature.fix.format_map(words),
                _line(log, found.start()),
            )
    return None


class _Words(dict[str, str]):
    """Groups of a match; one that took no part is `…`."""

    def __missing__(self, key: str) -> str:
        return "…"


_PREFIX = re.compile(
    r"^(?:\([^)]*\) ?)*(?:(?:ERROR|WARNING|INFO|CRITICAL) [\d-]+ [\d:]+ (?:\[[^\]]*\] ?)?)?"
)


def _line(log: str, at: int) -> str:
    """The line around a place, without the process and time before it."""
    start = log.rfind("\n", 0, at) + 1
    end = log.find("\n", at)
    return bare(log[start : len(log) if end < 0 else end])


def bare(line: str) -> str:
    """A log line without the process, time and file that vLLM puts before it."""
    return " ".join(_PREFIX.sub("", line.strip()).split())[:300]


_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception|Exit)\b.*|[\w. ]+: error: .+)$")
_FRAME = re.compile(r'^File "(?P<file>[^"]+)", line \d+, in (?P<function>\S+)')
_WRAPPERS = (
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "EngineDeadError",
)


def last_error(log: str) -> str | None:
    """The last line that names an error, the root cause before what wraps it."""
    lines = list(_errors(log))
    roots = [line for line in lines if not any(words in line for words in _WRAPPERS)]
    told = roots or lines
    return told[-1] if told else None


def _errors(log: str) -> Iterator[str]:
    """Lines that name an error; one that says no more is told with where it was raised."""
    place = ""
    for line in log.splitlines():
        text = bare(line)
        if found := _FRAME.match(text):
            place = f" in {found['function']} ({PurePath(found['file']).name})"
        elif _ERROR.match(text):
            yield text if ":" in text else f"{text}{place}"
