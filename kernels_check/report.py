"""What a run concludes: findings, the exit code, JSON for programs and a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels_check import SCHEMA
from kernels_check.model import Check, Result, Status

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
VERDICTS = {OK: "ok", WARNING: "warning", CRITICAL: "critical", UNKNOWN: "unknown"}

CODES = {
    Status.CRASHED: "KERNEL_CRASHED",
    Status.HUNG: "KERNEL_HUNG",
    Status.BROKEN: "KERNEL_NOT_CHECKED",
}
CAUSES = {
    "KERNEL_WRONG": "a kernel of this image does not compute its definition on this chip",
    "KERNEL_OUT_OF_BOUNDS": "a kernel touches memory beyond one of its buffers",
    "KERNEL_GRAPH": "a captured graph does not repeat what the call did",
    "KERNEL_CRASHED": "the check's process died, or CUDA reported an error it cannot recover from",
    "KERNEL_HUNG": "a kernel did not end, or what it was compiled with did not",
    "KERNEL_SLOW": "the engine's path costs more than it must on this chip",
    "KERNEL_NOT_CHECKED": "the check could not be carried out in this image",
    "KERNEL_CHECK_BLIND": "a check lets through what it exists to catch, or cries without cause",
    "GPU_UNHEALTHY": "the chip is not what others of its kind are",
}
ACTIONS = {
    "KERNEL_WRONG": "keep traffic off; try the engine's other backend; report with the seed",
    "KERNEL_OUT_OF_BOUNDS": "keep traffic off; report with the shape named in the evidence",
    "KERNEL_GRAPH": "run with --enforce-eager until it is fixed; report with the seed",
    "KERNEL_CRASHED": "look at the log of the check; run it alone with --only NAME",
    "KERNEL_HUNG": "run it alone with --only NAME; look for a compiler that waits",
    "KERNEL_SLOW": "compare with the evidence of a healthy node before trusting speculation here",
    "KERNEL_NOT_CHECKED": "read the log; another engine version may need another check",
    "KERNEL_CHECK_BLIND": "do not trust a pass of this check; report it",
    "GPU_UNHEALTHY": "drain the node; look at nvidia-smi -q and the kernel log for Xid",
}
WARNINGS = frozenset({"KERNEL_SLOW", "KERNEL_NOT_CHECKED"})


def findings(
    checks: Sequence[Check], results: Sequence[Result], subject: str
) -> list[dict[str, Any]]:
    """One for each check that did not pass, worst first."""
    made = []
    for check, result in zip(checks, results, strict=True):
        if result.status in {Status.PASSED, Status.SKIPPED}:
            continue
        code = CODES.get(result.status, check.code)
        made.append(
            {
                "code": code,
                "severity": "warning" if code in WARNINGS else "critical",
                "subject": f"{subject}/{check.name}",
                "evidence": result.evidence,
                "cause": CAUSES[code],
                "action": ACTIONS[code],
                "since": None,
            }
        )
    return sorted(made, key=lambda one: one["severity"] != "critical")


def exit_code(found: Sequence[Mapping[str, Any]], results: Sequence[Result]) -> int:
    """2 with a critical finding, 1 with a warning, 3 when nothing was looked at, else 0."""
    if any(one["severity"] == "critical" for one in found):
        return CRITICAL
    if not any(result.status is not Status.SKIPPED for result in results):
        return UNKNOWN
    return WARNING if found else OK


def as_json(
    checks: Sequence[Check],
    results: Sequence[Result],
    *,
    seed: int,
    at: str,
    seconds: float,
    environment: Mapping[str, Any],
    whole: bool,
    shared: bool = False,
) -> dict[str, Any]:
    """The run.

    `whole`: every check that is always run was run, and nothing was planted. `shared`: beside an
    engine, so that no speed was measured.
    """
    found = findings(checks, results, str(environment.get("gpu_uuid") or "gpu"))
    code = exit_code(found, results)
    return {
        "schema": SCHEMA,
        "at": at,
        "seed": seed,
        "seconds": round(seconds, 1),
        "exit": code,
        "verdict": VERDICTS[code],
        "whole": whole,
        "shared": shared,
        "environment": dict(environment),
        "checks": [result.as_json() for result in results],
        "findings": found,
    }


def table(results: Sequence[Result]) -> str:
    """A line a check."""
    width = max((len(result.name) for result in results), default=0)
    lines = []
    for result in results:
        seconds = f"{result.seconds:6.1f} s"
        lines.append(f"{result.status:<8} {result.name:<{width}} {seconds}  {result.evidence}")
    return "\n".join(lines)


def lines(document: Mapping[str, Any]) -> str:
    """The table of a run's JSON."""
    return table(
        [
            Result(one["name"], Status(one["status"]), one["seconds"], one["evidence"])
            for one in document["checks"]
        ]
    )


def summary(document: Mapping[str, Any]) -> str:
    """The last line."""
    counts: dict[str, int] = {}
    for check in document["checks"]:
        counts[check["status"]] = counts.get(check["status"], 0) + 1
    said = ", ".join(f"{n} {status}" for status, n in sorted(counts.items(), key=lambda x: -x[1]))
    where = document["environment"].get("gpu") or "no GPU named"
    return (
        f"KERNELS {document['verdict'].upper()}: {said} in {document['seconds']:.0f} s on {where}"
    )
