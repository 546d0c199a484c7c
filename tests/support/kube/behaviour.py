"""What the pods of a test do: a file of rules that the fake kubelet reads at each start.

A rule says which containers it is for and what they do; of several, the last that fits counts. A
container that no rule fits loads for half a second and serves until it is told to stop. An engine
that serves goes on reading its rule: `acceptance`, `grammar_log` and `blind` hold from the moment
on at which they are written, all else from the next start on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the engine of a pod does."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that its pod must have; none for any pod."""
    contains: str = ""
    """Text that must be in its image, command or arguments."""
    pace: float = 0.05
    """Share of what they say that the pod's probe periods, preStop sleeps and back-offs last."""
    pull_s: float = 0.0
    """How long its image is pulled."""
    image_error: str = ""
    """The image cannot be pulled, and this is what the runtime says."""
    load_s: float = 0.5
    """How long it loads before it answers; the log tells the phases meanwhile."""
    stop_loading_at: str = ""
    """It hangs in this phase for good: weights, drafter, compile or graphs."""
    unready: bool = False
    """It answers, and /health is 503 for good."""
    crash_log: str = ""
    """It prints this and ends with `exit_code` when it should have begun to serve."""
    crash_at: str = ""
    """The phase in which it ends so; none: when it should have begun to serve."""
    crash_after_s: float | None = None
    """It ends so many seconds after it began to serve (with `crash_log`, `exit_code`)."""
    exit_code: int = 1
    oom: bool = False
    """It is killed for memory when it should have begun to serve."""
    ignores_term: bool = False
    """It does not stop when told to."""
    blind: bool = False
    """It answers, and /metrics is 503."""
    silent_speculation: bool = False
    """It serves without speculation, whatever its arguments say."""
    acceptance: float | None = None
    """Chance that a draft token is accepted; None for the method's usual."""
    rate_per_s: float = 0.0
    """Requests that come to it of themselves."""
    max_num_seqs: int | None = None
    """Requests it runs at once; None for what its arguments say."""
    step_factor: float = 1.0
    """How much slower than an H100 in the simulator's figures its steps are."""
    token_s: float | None = None
    """What each verified or decoded token adds to a step; None for the simulator's figure."""
    grammar_log: str = ""
    """It prints this and ends when a request with a grammar comes while it speculates."""
    runs: bool = False
    """A container that is no engine runs its command on this machine, its volumes in a folder."""
    env: Mapping[str, str] = field(default_factory=dict)
    """More environment for such a command, and for what is executed in any container."""

    def fits(self, labels: Mapping[str, str], text: str) -> bool:
        """Whether it is for a container of a pod with these labels."""
        return self.contains in text and self.labels.items() <= labels.items()


def file_of(folder: Path, namespace: str) -> Path:
    """Where the rules of a namespace are."""
    return folder / "behaviours" / f"{namespace}.json"


def write(folder: Path, namespace: str, rules: tuple[Behaviour, ...]) -> None:
    """Set the rules of a namespace; they hold for containers that start from now on."""
    path = file_of(folder, namespace)
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps([dataclasses.asdict(rule) for rule in rules]))
    fresh.replace(path)


def read(folder: Path, namespace: str, labels: Mapping[str, str], text: str) -> Behaviour:
    """What a container does; `text`: its image, command and arguments."""
    try:
        rules: list[dict[str, Any]] = json.loads(file_of(folder, namespace).read_text())
    except FileNotFoundError:
        return Behaviour()
    fitting = [rule for rule in (Behaviour(**rule) for rule in rules) if rule.fits(labels, text)]
    return fitting[-1] if fitting else Behaviour()
