"""A pair as it is asked for on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from speccli.core.engines.advice import version_of
from speccli.core.errors import UsageError
from speccli.core.preflight.base import Model, Pair
from speccli.core.preflight.files import read_model
from speccli.core.preflight.kinds import MASKS
from speccli.core.recipes.model import Method
from speccli.core.sizing.gpus import GPUS

_FORMATS = {"eagle3": "eagle3", "peagle": "p-eagle", "dflash": "dflash", "dflash2": "dflash"}
_HEAD_LAYERS = 8
"""A draft with fewer layers than this, and than a fifth of the target's, is a head."""


def pair_from(
    target: str, draft: str, *, method: str | None, version: str, gpu: str | None, **rest: Any
) -> Pair:
    """The pair, its files read.

    Raises:
        UsageError: a folder or an option that is not what it should be.
        SpecctlError: the hub cannot be asked.
    """
    numbers = version_of(version)
    if numbers is None:
        raise UsageError(f"--engine-version {version!r} is no version", hint="write 0.32.0")
    if gpu is not None and gpu not in GPUS:
        raise UsageError(f"--gpu {gpu!r} is not known", hint=f"one of {', '.join(GPUS)}")
    methods = get_args(Method)
    if method is not None and method not in methods:
        close = difflib.get_close_matches(method, methods, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(methods)}"
        raise UsageError(f"--method {method!r} is not known", hint=hint)
    big, small = read_model(target), read_model(draft)
    return Pair(
        target=big,
        draft=small,
        method=method or looks_like(big, small),
        version=numbers,
        gpu=GPUS[gpu] if gpu else None,
        **rest,
    )


def looks_like(target: Model, draft: Model) -> str:
    """The method a draft was most likely made for, by its format, masks and size."""
    config: Mapping[str, Any] = draft.config
    told = _FORMATS.get(str(config.get("speculators_model_type") or ""))
    if told:
        return told
    if any(isinstance(draft.text.get(key), int) for key in MASKS):
        return "p-eagle"
    layers, of = draft.number("num_hidden_layers"), target.number("num_hidden_layers")
    head = layers is not None and layers < _HEAD_LAYERS and (of is None or layers * 5 < of)
    marked = any(
        key in config for key in ("draft_vocab_size", "eagle_config", "target_hidden_size")
    )
    return "eagle3" if head or marked else "draft_model"
