"""What is to be trained: one JSON file, which every stage reads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from draft_training import bounds
from draft_training.events import Failed

METHODS = ("eagle3", "p-eagle")
ANSWERS_FREE = frozenset({"gpu_memory", "eager", "compile", "at_once", "engines"})
"""Of the answers: how an engine makes them, and not what they are."""
TRAINING_FREE = frozenset(
    {"minutes", "steps", "save_every_s", "measure_every_s", "batch_tokens", "k"}
)
"""Of the training: how long, how often it is looked at, and what must be lowered where the GPU has
no room. It goes on from its checkpoint with others of these, and with others of these alone."""


@dataclass(frozen=True)
class Answers:
    """How the target answers the prompts: training data is its own text (on-policy)."""

    greedy: bool = True
    samples: int = 2
    """Sampled answers to each prompt, beside the greedy one."""
    temperature: float = 0.8
    top_p: float = 0.95
    max_tokens: int = 384
    max_prompt_tokens: int = 768
    seconds: float | None = None
    """Stop asking for more so long after the engine was up; what has come is used."""
    chunk: int = 1024
    """Prompts handed over at a time; also what an interruption can lose."""
    gpu_memory: float = 0.5
    eager: bool = False
    """No graphs and no compilation: starts sooner, answers slower."""
    compile: bool = True
    """False: graphs of decoding without compilation; starts nearly as soon as eager."""
    at_once: int | None = None
    """Answers that an engine works on at once; None: what the engine takes. Above 512 most engines
    have no graph."""
    held_tokens: int = 200
    """Of the greedy answers to held-out prompts, which acceptance is watched on."""
    engines: int = 1
    """Engines that answer at once, each with its share of `gpu_memory`: a small target leaves a GPU
    waiting for its engine's Python."""


@dataclass(frozen=True)
class Training:
    """The optimisation."""

    minutes: float | None = None
    steps: int | None = None
    """One of the two; the learning rate follows the share that is used up."""
    batch_tokens: int = 16384
    """Tokens in a batch, padding included."""
    unroll: int = 5
    """Steps of training-time test (EAGLE-3, arXiv:2503.01840); parallel depths (P-EAGLE)."""
    decay: float = 0.9
    """Weight of each further step of the unroll."""
    draft_vocab: int = 12288
    lr: float = 2e-3
    head_lr: float = 6e-4
    warmup: float = 0.03
    weight_decay: float = 0.01
    validation: int = 200
    """Answers kept out of training."""
    mask_token: int = 4
    """P-EAGLE: the token that stands where the real one is not known yet."""
    fused_loss: bool = True
    """Speculators' Triton losses; only on a GPU."""
    save_every_s: float = 60.0
    measure_every_s: float = 60.0
    """Seconds of training between two looks at the held-out prompts."""
    k: int = 5
    """Tokens drafted a step, where acceptance on them is told; at most `unroll`."""


@dataclass(frozen=True)
class Job:
    """One head."""

    target: str
    out: Path
    method: str = "eagle3"
    prompts: Path | None = None
    """JSON lines: {"id", "messages"}; with a "test", held out, and measured with by that name; with
    a "source", one of `shares`."""
    shares: dict[str, float] = field(default_factory=dict)
    """Of each source in what is answered, in any unit; none: as the prompts come."""
    prompts_sha256: str | None = None
    """Of its lines without a test, so that a job says what it was trained on."""
    tests_sha256: str | None = None
    """Of the others: with other tests held-out prompts are answered and looked at again."""
    init: Path | None = None
    """A head to go on from, in Speculators' form or the plain one."""
    aux_layers: tuple[int, ...] | None = None
    seed: int = 0
    device: str | None = None
    answers: Answers = field(default_factory=Answers)
    training: Training = field(default_factory=Training)

    @property
    def work(self) -> Path:
        """Where stages leave what the next one reads."""
        return self.out / "work"

    @property
    def speculators(self) -> Path:
        """The head in the form of Speculators."""
        return self.out / "speculators"

    @property
    def plain(self) -> Path:
        """The head in the form that an engine loads beside the target."""
        return self.out / "head"


def read(path: Path) -> Job:
    """The job of a file.

    Raises:
        Failed: not a job.
    """
    try:
        return from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Failed(
            "bad-job", f"{path}: {error}", "write it with `specctl draft train`"
        ) from error


def from_dict(value: dict[str, Any]) -> Job:
    """A job from what JSON gives.

    Raises:
        TypeError: an unknown key.
        KeyError: no target or no out.
        ValueError: a method that is not known, neither minutes nor steps, or a setting that cannot
            be (`bounds.OutOfBoundsError`).
    """
    rest = dict(value)
    unknown = set(rest) - {f.name for f in fields(Job)}
    if unknown:
        raise TypeError(f"unknown key {sorted(unknown)[0]!r}")
    made = Job(
        **{
            **rest,
            "target": rest["target"],
            "out": Path(rest["out"]),
            "prompts": Path(rest["prompts"]) if rest.get("prompts") else None,
            "init": Path(rest["init"]) if rest.get("init") else None,
            "aux_layers": _layers(rest.get("aux_layers")),
            "answers": Answers(**rest.get("answers", {})),
            "training": Training(**rest.get("training", {})),
        }
    )
    if made.method not in METHODS:
        raise ValueError(f"method {made.method!r} is none of {', '.join(METHODS)}")
    if made.training.minutes is None and made.training.steps is None:
        raise ValueError("training needs minutes or steps")
    bounds.check(made)
    return made


def _layers(value: Any) -> tuple[Any, ...] | None:
    if value is not None and not isinstance(value, list | tuple):
        raise bounds.OutOfBoundsError("aux_layers", value, "a list of layers")
    return tuple(value) if value else None


def recipe(job: Job) -> dict[str, Any]:
    """What a head is made with beside the answers: of another recipe it is another head."""
    value = to_dict(job)
    made = {name: value[name] for name in ("method", "init")}
    made["aux_layers"] = None if job.aux_layers is None else list(job.aux_layers)
    more = value["training"].items()
    return made | {f"training.{k}": v for k, v in more if k not in TRAINING_FREE}


def to_dict(job: Job) -> dict[str, Any]:
    """What JSON can hold."""
    value = asdict(job)
    for name in ("out", "prompts", "init"):
        value[name] = None if value[name] is None else str(value[name])
    return value
