"""What a judge knows beside the snapshot, frozen: the extra evidence that some rules read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from speccli.core.baseline.model import Baseline, Difference, Key
from speccli.core.stats.mix import Verdict
from speccli.core.stats.slope import Slide


@dataclass(frozen=True, slots=True)
class Drift:
    """A fall of acceptance that is proven."""

    subject: str
    """`fleet` or `host:port/engine`."""
    was: float
    """The baseline's rate for the mix seen, or whatever the mix where it saw none such."""
    now: float
    """The rate since the fall began."""
    length: float | None
    """Acceptance length since then; None where drafts are not counted."""
    drafts: float
    seconds: float
    """How long that is; 0 where a fixed set of prompts was compared at once."""
    since: float | None
    """When it began, Unix seconds."""
    verdict: Verdict
    looks_between: float | None
    """Looks between two false alarms, on average and at least; None for a fixed set."""


@dataclass(frozen=True, slots=True)
class EngineSlide:
    """An engine whose acceptance slides."""

    subject: str
    started: float | None
    slide: Slide


@dataclass(frozen=True, slots=True)
class Unlike:
    """A part of the key that is not the baseline's, and where."""

    difference: Difference
    engines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judge's evidence at one snapshot."""

    baseline: Baseline | None
    running: Key
    """What is known of what runs now, over all engines that are alike."""
    unlike: tuple[Unlike, ...] = ()
    compared: int = 0
    """Engines that are held against the baseline."""
    forced: bool = False
    """Whether unlike engines are compared all the same."""
    drifts: tuple[Drift, ...] = ()
    slides: tuple[EngineSlide, ...] = ()
    speculated: Mapping[str, str] = field(default_factory=dict)
    """Why an engine should speculate that shows no drafts, by its name."""
