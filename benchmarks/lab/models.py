"""The benches that `estimate.py` is given, by the model that the files themselves tell of."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from sized import MIXTURE, QUANTIZED, group_of, named  # noqa: E402
from usage import read_object  # noqa: E402

from speccli.core.bench.merge import read_all  # noqa: E402
from speccli.core.bench.results import Result  # noqa: E402
from speccli.core.errors import UsageError  # noqa: E402
from speccli.core.sizing.gpus import GPUS, Gpu  # noqa: E402

FORM = "SHAPE[-WEIGHTS][-tpN]=FILE"
NAME = re.compile(rf"([^-=]+)(?:-({'|'.join(QUANTIZED)}))?(?:-tp([1-9]\d?))?")
SHAPE = re.compile(r"in the shape of an? (\d+B) model ")
WEIGHTS = re.compile(rf", ({'|'.join(kind.upper() for kind in QUANTIZED)})\)?:")
Held = dict[tuple[str, str], float]


@dataclass(frozen=True)
class Model:
    """What was measured: a shape, as it is stored, on so many GPUs of one kind."""

    name: str
    weights: str
    gpus: int
    gpu: Gpu


@dataclass(frozen=True)
class Given:
    """The benches of one name, as one."""

    named: str
    model: Model
    result: Result
    held: Held
    """GPU memory in bytes by (arm, weights)."""


def given(benches: Sequence[str]) -> list[Given]:
    """`SHAPE[-WEIGHTS][-tpN]=FILE`, a name as often as it has files.

    Raises:
        UsageError: one is not of that form, cannot be read, or tells of another model.
    """
    files: dict[str, list[Path]] = {}
    for text in benches:
        name, equals, file = text.partition("=")
        if not equals or not NAME.fullmatch(name) or not file:
            raise UsageError(f"{text!r} is not {FORM}", hint="as 8b=8b-arms.json, 70b-fp8-tp2=…")
        files.setdefault(name, []).append(Path(file))
    return [_given(name, paths) for name, paths in files.items()]


def _given(name: str, files: list[Path]) -> Given:
    result = read_all(files)
    where = ", ".join(str(file) for file in files)
    if result.simulated:
        raise UsageError(f"{where}: simulated: there is no GPU that an estimate could be of")
    match = NAME.fullmatch(name)
    assert match is not None
    shape, weights, gpus = match[1], match[2] or weights_of(result), int(match[3] or 1)
    group_of(shape, weights, gpus)
    told = (shape_of(result, where), weights_of(result), max(a.gpu_count for a in result.arms))
    if told != (shape, weights, gpus):
        raise UsageError(
            f"{name}: {where} tells of {named(*told)}", hint=f"write {named(*told)}={files[0]}"
        )
    held = {key: used for file in files for key, used in held_by_server(file).items()}
    return Given(name, Model(shape, weights, gpus, gpu_of(result, where)), result, held)


def shape_of(result: Result, where: str) -> str:
    """How a stand-in says what it stands in for: "… in the shape of an 8B model …".

    Raises:
        UsageError: it stands in for nothing that the lab has measured.
    """
    if result.stand_in is None:
        return MIXTURE
    found = SHAPE.search(result.stand_in)
    if found is None:
        raise UsageError(f"{where}: no shape of the lab's: {result.stand_in}")
    return found[1].lower()


def weights_of(result: Result) -> str:
    """How a stand-in says that its weights are stored: "…, FP8: the cost is that model's"."""
    found = WEIGHTS.search(result.stand_in or "")
    return found[1].lower() if found else "bf16"


def gpu_of(result: Result, where: str) -> Gpu:
    """The planner's name of the GPU it was measured on.

    Raises:
        UsageError: the file does not say which, or the planner does not know it.
    """
    told = str((result.provenance.gpu or {}).get("name") or "")
    words = set(re.split(r"[\s-]+", told.lower()))
    fitting = [gpu for name, gpu in GPUS.items() if set(name.split("-")) <= words]
    if "pcie" in words:  # the same names, other rates
        fitting = []
    if not fitting:
        known = ", ".join(gpu.title for gpu in GPUS.values())
        raise UsageError(
            f"{where}: measured on {told or 'a GPU it does not name'}: specctl plan knows {known}"
        )
    return max(fitting, key=lambda gpu: len(gpu.name))


def held_by_server(bench: Path) -> Held:
    """GPU memory in bytes by (arm, weights), as the lab's `servers-GROUP.json` beside it says.

    After the load where servers were weighed then, else as they were before the first prompt.

    Raises:
        UsageError: there is such a file, and it is something else.
    """
    file = bench.with_name(f"servers-{bench.stem.rpartition('-')[0]}.json")
    if not file.exists():
        return {}
    kept = read_object(file, "what a group's servers held")
    told = kept.get("memory_after_load") or kept.get("memory_by_server") or []
    found: Held = {}
    try:
        for each in told:
            used = float(str(each["used"]).split()[0]) * 2**20
            key = each["arm"], each["weights"]
            found[key] = found.get(key, 0.0) + used
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UsageError(f"{file}: a server without arm, weights or MiB used: {error}") from error
    return found
