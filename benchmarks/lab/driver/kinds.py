"""What a group is made of: servers, benches, and stretches of a recording."""

from __future__ import annotations

from dataclasses import dataclass, field

SHAREGPT = "sharegpt.jsonl"
LADDER = "1,8,32,64,128"


@dataclass(frozen=True)
class Arm:
    """One server."""

    name: str
    method: str = "none"
    k: int = 3
    head: str | None = None
    weights: str = "bf16"
    kv_gib: float = 6.0
    extra: tuple[str, ...] = ()
    schedule: bool = False
    """K by batch, from the sweep that was measured before."""
    spread: float | None = None
    """The small model as a mixture of experts whose experts differ by so much; None: a stand-in."""
    noise: float = 0.0
    """Of a mixture: what its router's logits are off by in each pass, in their own deviations."""
    dense: bool = False
    """The small model as it is."""
    label: str | None = None
    """Its name in a bench, where one group has several of them."""


@dataclass(frozen=True)
class Bench:
    """One `specctl bench run`."""

    name: str
    seconds: int
    """What it took, or is thought to take."""
    batches: str = LADDER
    requests: str = "16,48,96,192,256"
    datasets: tuple[str, ...] = (SHAREGPT,)
    arms: tuple[str, ...] = ()
    """Some of the group's; empty: all."""
    repeats: int = 2
    max_tokens: int = 128
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Traffic:
    """A stretch of a recording."""

    phase: str
    dataset: str
    more: tuple[str, ...] = ()
    part: int | None = None
    """Which so many of the set's prompts it asks; None: all, from the first on."""
    seconds: int = 45
    batch: int = 32
    max_tokens: int = 128


DRIFT = (
    Traffic("known", SHAREGPT),
    Traffic("other", "mtbench"),
    Traffic("sampled", SHAREGPT, ("--temperature", "0.7")),
)
"""What the head was trained on, another domain, and the first at another temperature."""


@dataclass(frozen=True)
class Group:
    """Servers that are up at once, and what is asked of them."""

    name: str
    shape: str
    arms: tuple[Arm, ...]
    benches: tuple[Bench, ...]
    max_num_seqs: int = 128
    max_model_len: int = 2048
    extra: tuple[str, ...] = ()
    gpus: int = 1
    """Over which each of its servers is split; `kv_gib` is of each GPU."""
    start_s: int = 170
    """What its servers need to be ready, or are thought to need."""
    notes: tuple[str, ...] = field(default=())
    cpu: bool = False
    """Its servers have no GPU: what is counted holds, times are nobody's."""
    in_turn: bool = False
    """There is no room for all of them: `do` serves those of each bench, and stops them."""
    traffic: tuple[Traffic, ...] = DRIFT
    """What `drift` records."""


def eagle(name: str = "eagle3", k: int = 3, **more: object) -> Arm:
    """An arm with the EAGLE-3 head."""
    return Arm(name, "eagle3", k, "eagle3", **more)  # type: ignore[arg-type]
