"""Arms: servers that run already, or that are started here one after the other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from speccli.core.engines import vllm_flags
from speccli.core.engines.advice import version_of
from speccli.core.engines.local import INSTALL_HINT, find_vllm_python
from speccli.core.engines.vllm import method_of
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.recipes.model import Draft, Recipe
from speccli.core.sources.targets import Target, parse_target

BASELINES = ("baseline", "none", "plain", "off")
"""Names that an arm without speculation goes by."""
_TELLS = "--per-request-spec-decode-metrics"
"""vLLM's flag that puts each answer's own drafts into it."""
_HEADS = {"eagle", "eagle3", "p-eagle", "draft_model", "mtp", "dflash"}
_PARALLEL = (
    ("--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel-size", "-pp"),
    ("--data-parallel-size", "-dp"),
)
_NGRAM = {"prompt_lookup_max": 4, "prompt_lookup_min": 2}


@dataclass(frozen=True, slots=True)
class Remote:
    """A server that runs already."""

    name: str
    target: Target


@dataclass(frozen=True, slots=True)
class Local:
    """A server that specctl starts, and stops when its rows are measured."""

    name: str
    model: str
    speculative: dict[str, Any] | None
    extra_args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """What drafts, in specctl's words."""
        return method_of(self.speculative)

    @property
    def k(self) -> int | None:
        """Tokens drafted a step; None without a draft."""
        k = (self.speculative or {}).get("num_speculative_tokens")
        return k if isinstance(k, int) else None

    @property
    def gpus(self) -> int:
        """How many GPUs its command asks for."""
        return prod(_number_after(self.extra_args, flags) for flags in _PARALLEL)


ArmSpec = Remote | Local


def _number_after(words: Sequence[str], flags: Sequence[str]) -> int:
    """The value of a flag, `--flag N` or `--flag=N`; 1 where it is not given."""
    flat = [part for word in words for part in word.split("=", 1)]
    for name, value in zip(flat, flat[1:], strict=False):
        if name in flags and value.isdigit():
            return int(value)
    return 1


def remotes(texts: Sequence[str]) -> tuple[Remote, ...]:
    """`NAME=URL`, each.

    Raises:
        UsageError: one is not of that form, or two share a name or an address.
    """
    arms = []
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or not name.strip() or not url.strip() or "/" in name:
            raise UsageError(
                "--arm is not NAME=URL", hint="write --arm baseline=http://10.0.0.7:8000"
            )
        arms.append(Remote(name.strip(), parse_target(url)))
    _distinct([arm.name for arm in arms], "arms")
    _distinct([arm.target.name for arm in arms], "arms have the address")
    return tuple(arms)


def _distinct(values: Sequence[str], what: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise UsageError(f"two {what} {value}", hint="each arm is a server of its own")


def locals_(
    target: str, drafts: Sequence[str], ks: Sequence[int], extra_args: Sequence[str] = ()
) -> tuple[Local, ...]:
    """The baseline, and `METHOD[=PATH]` of each draft at each K.

    Raises:
        UsageError: a method that needs a draft has none, or the other way round.
    """
    arms = [Local("baseline", target, None, tuple(extra_args))]
    for text in drafts:
        method, _, path = text.partition("=")
        for k in ks:
            name = method if len(ks) == 1 else f"{method}-k{k}"
            arms.append(
                Local(name, target, _speculative(method.strip(), path, k), tuple(extra_args))
            )
    _distinct([arm.name for arm in arms], "arms")
    return tuple(arms)


def _speculative(method: str, path: str, k: int) -> dict[str, Any]:
    if method in _HEADS and not path and method != "mtp":
        raise UsageError(f"--draft {method} needs a draft", hint=f"write --draft {method}=PATH")
    if method == "p-eagle":
        return {
            "method": "eagle3",
            "model": path,
            "num_speculative_tokens": k,
            "parallel_drafting": True,
        }
    if method in {"ngram", "ngram_gpu"}:
        return {"method": method, "num_speculative_tokens": k, **_NGRAM}
    if method in _HEADS:
        return {"method": method, "num_speculative_tokens": k, **({"model": path} if path else {})}
    known = ", ".join(sorted({*_HEADS, "ngram", "ngram_gpu"}))
    raise UsageError(f"--draft {method!r} is no method", hint=f"one of: {known}")


def of_recipe(recipe: Recipe, ks: Sequence[int] = ()) -> tuple[Local, ...]:
    """A recipe without its draft, and with it (at each K)."""
    if recipe.engine.kind != "vllm":
        raise UsageError(f"recipe {recipe.name}: only vLLM can be started here")
    arms = [_of_line("baseline", replace(recipe, draft=Draft()))]
    for k in ks or (recipe.draft.k,):
        if recipe.speculates:
            name = recipe.draft.method if len(ks) < 2 else f"{recipe.draft.method}-k{k}"
            arms.append(_of_line(name, replace(recipe, draft=replace(recipe.draft, k=k))))
    return tuple(arms)


def _of_line(name: str, recipe: Recipe) -> Local:
    from speccli.core.plan import plan

    made = plan(recipe).line
    if made.refusals:
        first = made.refusals[0]
        raise UsageError(f"recipe {recipe.name}: {first.evidence}", hint=first.action)
    words = list(made.command[3:])  # vllm serve MODEL
    if "--speculative-config" in words:
        at = words.index("--speculative-config")
        del words[at : at + 2]
    speculative = None if made.speculative is None else dict(made.speculative)
    return Local(name, recipe.target.model, speculative, tuple(words), dict(recipe.engine.env))


def the_baseline(arms: Sequence[ArmSpec], named: str | None) -> str:
    """The name of the arm that others are compared with.

    Raises:
        UsageError: the one that was named is not there.
    """
    names = [arm.name for arm in arms]
    if named is not None:
        if named not in names:
            raise UsageError(f"--baseline {named} is no arm", hint=f"one of: {', '.join(names)}")
        return named
    return next((name for name in names if name.lower() in BASELINES), names[0])


def python_with_vllm() -> tuple[Path, str | None]:
    """The interpreter that has vLLM, and the version, where it tells.

    Raises:
        SpecctlError: there is none.
    """
    python = find_vllm_python()
    if python is None:
        raise SpecctlError("--to local needs vLLM on this machine", hint=INSTALL_HINT)
    code = "import importlib.metadata as m; print(m.version('vllm'))"
    try:
        told = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=60, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        told = ""
    return python, told.partition("+")[0] or None


def telling(arm: Local, version: str | None) -> Local:
    """The same, with answers that tell their own drafts where this version can."""
    known = version_of(version) if version else None
    since = vllm_flags.FLAGS_SINCE[_TELLS]
    given = any(word.startswith(_TELLS) for word in arm.extra_args)
    if arm.speculative is None or known is None or known < since or given:
        return arm
    return replace(arm, extra_args=(*arm.extra_args, _TELLS, "summary"))


def command_of(arm: Local) -> tuple[str, ...]:
    """What a person would type."""
    words = ["vllm", "serve", arm.model]
    if arm.speculative is not None:
        words += ["--speculative-config", json.dumps(arm.speculative)]
    return (*words, *arm.extra_args)
