"""What a plan knows of a recipe's models: from folders, else the catalog, never the network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from speccli.core.preflight.base import Model
from speccli.core.preflight.files import read_model
from speccli.core.recipes import catalog
from speccli.core.sizing.shape import Shape, ShapeError, shape_of

AUX_STATES = 3
"""Hidden states an EAGLE-3 head reads, unless its configuration says otherwise."""


def find(name: str | None, folder: str | None) -> Model | None:
    """A model by its folder, or by its name in the catalog; None where nothing is known.

    Raises:
        UsageError: a folder without a config.json that can be read.
    """
    if folder is not None:
        return replace(read_model(folder), name=name or folder)
    if name is None:
        return None
    if Path(name).expanduser().is_dir():
        return read_model(name)
    known = catalog.models().get(name)
    if known is None:
        return None
    return Model(name, known["config"], None, complete=False, assumed=not known["read"])


def shape(model: Model | None, quantization: str | None = None) -> Shape | None:
    """Its shape, where its configuration tells one."""
    if model is None:
        return None
    try:
        return shape_of(model.text, quantization)
    except ShapeError:
        return None


def head_params(head: Model, shape_: Shape, target: Shape) -> float:
    """Parameters of an EAGLE head: fc over the aux states, q, k, v twice as wide, own vocabulary.

    As its page says where that is known; the input embedding counts, though it is the target's.
    """
    told = catalog.models().get(head.name, {}).get("params")
    if isinstance(told, int | float):
        return float(told)
    vocab = head.number("draft_vocab_size") or shape_.vocab
    ids = head.config.get("eagle_aux_hidden_state_layer_ids")
    states = len(ids) if isinstance(ids, list) else AUX_STATES
    kv = shape_.kv_heads * shape_.head_dim
    wider = shape_.hidden * (shape_.heads * shape_.head_dim + 2 * kv)
    return float(
        states * target.hidden * shape_.hidden
        + wider
        + shape_.attention_params
        + shape_.mlp_params
        + vocab * shape_.hidden
        + shape_.embedding_params
    )
