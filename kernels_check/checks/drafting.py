"""What happens between verification and the next draft.

EAGLE's, P-EAGLE's and n-gram's bookkeeping.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels_check.model import Context, Passed, Wrong, missing

PAD_TOKEN, MASK_TOKEN = 11, 13


def _utils() -> Any:
    try:
        from vllm.v1.spec_decode import utils
    except ImportError as error:
        raise missing("vLLM's drafting kernels", error) from error
    return utils


def _ints(values: Any, dtype: str = "int32") -> Any:
    import torch

    return torch.tensor(np.asarray(values), dtype=getattr(torch, dtype), device="cuda")


def next_tokens(context: Context) -> Passed:
    """EAGLE: the last token that stands, and how many do.

    Discarded and empty rows take the backup.
    """
    utils = _utils()
    rng = np.random.default_rng(context.seed)
    rows = 0
    for k in (1, 3, 5, 7, 15):
        for batch in (1, 2, 7, 32):
            vocab = 151936
            sampled = rng.integers(0, vocab, (batch, k + 1))
            stand = np.array([(0, 1, k, k + 1)[i % 4] for i in range(batch)])
            sampled[np.arange(k + 1)[None, :] >= stand[:, None]] = -1
            discarded = rng.random(batch) < 0.2
            backup = rng.integers(0, vocab, batch)
            token, count = _ints(np.full(batch, -7)), _ints(np.full(batch, -7))
            utils.eagle_prepare_next_token_padded_kernel[(batch,)](
                _ints(sampled), _ints(discarded, "bool"), _ints(backup), token, count,
                vocab, k + 1, batch, k + 1, BLOCK_SIZE_TOKENS=1 << k.bit_length(),
            )  # fmt: skip
            valid = np.where(discarded, 0, stand)
            last = sampled[np.arange(batch), np.maximum(valid - 1, 0)]
            wanted = np.where(valid > 0, last, backup)
            _same("next token", token, wanted, k, batch)
            _same("count of tokens that stand", count, valid, k, batch)
            rows += batch
    return Passed(f"{rows} requests exact")


def sample_points(context: Context) -> Passed:
    """EAGLE: which row the next draft starts from, after the rejected ones."""
    utils = _utils()
    rng = np.random.default_rng(context.seed)
    rows = 0
    for k in (1, 3, 5, 7, 15):
        for batch in (1, 2, 7, 32):
            drafted = np.array([(k, 0, 1, max(k - 1, 0))[i % 4] for i in range(batch)])
            counts = np.array([rng.integers(1, n + 2) for n in drafted])
            starts = np.concatenate([[0], np.cumsum(drafted + 1)])
            point, rejected = _ints(np.full(batch, -7)), _ints(np.full(batch, -7))
            utils.eagle_prepare_inputs_padded_kernel[(batch,)](
                _ints(np.cumsum(drafted)), _ints(counts), _ints(starts), point, rejected, batch
            )
            wanted = np.where(drafted > 0, drafted + 1 - counts, 0)
            _same("rejected", rejected, wanted, k, batch)
            _same("row to draft from", point, starts[1:] - 1 - wanted, k, batch)
            rows += batch
    return Passed(f"{rows} requests exact")


def slots(context: Context) -> Passed:
    """EAGLE: positions.

    KV slots and lengths of the next draft step, at block edges and the length limit.
    """
    utils = _utils()
    rng = np.random.default_rng(context.seed)
    rows = 0
    for block in (16, 32, 64, 128):
        batch, most = 33, 4096
        blocks = most // block
        table = rng.permutation(batch * blocks).reshape(batch, blocks)
        at = rng.integers(0, most - 1, batch)
        at[:4] = (0, block - 1, block - 2, most - 1)
        lengths = at + 1
        place, slot = (_ints(np.full(n, -7), "int64") for n in (batch, batch + 3))
        held = _ints(lengths)
        utils.eagle_step_update_slot_mapping_and_metadata(
            _ints(at, "int64"), _ints(table), held, block, most, place, slot, batch + 3
        )
        over = at + 1 >= most
        new = np.where(over, 0, at + 1)
        wanted = table[np.arange(batch), new // block] * block + new % block
        _same("position", place, new, 1, batch)
        _same("slot", slot, np.concatenate([np.where(over, -1, wanted), [-1] * 3]), 1, batch)
        _same("length", held, np.where(over, 1, np.minimum(lengths + 1, most)), 1, batch)
        rows += batch
    return Passed(f"{rows} requests exact, block sizes 16 to 128")


def parallel(context: Context) -> Passed:
    """P-EAGLE: inputs shifted by one.

    The bonus token, K - 1 mask slots, and the rejected tail marked.
    """
    utils = _utils()
    rng = np.random.default_rng(context.seed)
    rows = 0
    for k in (1, 3, 7):
        for batch in (1, 2, 7, 32):
            rows += _expand(utils, rng, k, batch)
    return Passed(f"{rows} rows exact")


def _expand(utils: Any, rng: np.random.Generator, k: int, batch: int) -> int:
    """One batch through the kernel, every output compared; returns the rows compared."""
    lengths = rng.integers(1, 20, batch)
    rejected = np.array([int(rng.integers(0, n)) for n in lengths])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ends = starts[1:] - 1 - rejected
    total = int(starts[-1])
    ids, first = rng.integers(100, 9000, total), rng.integers(0, 500, batch)
    position = np.concatenate([first[r] + np.arange(n) for r, n in enumerate(lengths)])
    bonus = rng.integers(100, 9000, batch)
    size = total + batch * (k - 1)
    wanted: dict[str, Any] = {name: [] for name in ("ids", "position", "dead", "masked", "new")}
    mapping = np.zeros(total, dtype=np.int64)
    for r, n in enumerate(lengths):
        base, valid = len(wanted["ids"]), int(n) - 1 - int(rejected[r])
        row = [*ids[starts[r] + 1 : starts[r] + 1 + valid], bonus[r], *[MASK_TOKEN] * (k - 1)]
        dead = int(rejected[r])
        wanted["new"] += [base + valid + i for i in range(k)]
        wanted["position"] += [int(first[r]) + i for i in range(len(row))] + [0] * dead
        wanted["masked"] += [False] * (valid + 1) + [True] * (k - 1) + [False] * dead
        wanted["dead"] += [False] * len(row) + [True] * dead
        wanted["ids"] += row + [PAD_TOKEN] * dead
        mapping[starts[r] : starts[r] + n] = base + np.arange(n)
    made = {
        "ids": _ints(np.full(size, -7)), "position": _ints(np.full(size, -7)),
        "dead": _ints(np.zeros(size), "bool"), "masked": _ints(np.zeros(size), "bool"),
        "new": _ints(np.full(batch * k, -7)),
    }  # fmt: skip
    source = _ints(np.full(total, -7))
    width = 32
    blocks = (int(lengths.max()) + k + width - 1) // width
    utils.copy_and_expand_eagle_inputs_kernel[(batch, blocks)](
        _ints(ids), _ints(position), _ints(bonus), made["ids"], made["position"], made["dead"],
        made["masked"], made["new"], source, _ints(starts), _ints(ends), PAD_TOKEN, MASK_TOKEN,
        total, k, True, BLOCK_SIZE_TOKENS=width,
    )  # fmt: skip
    for name, tensor in made.items():
        _same(name, tensor, np.asarray(wanted[name]), k, batch)
    _same("hidden-state mapping", source, mapping, k, batch)
    return size


def ngram(context: Context) -> Passed:
    """N-gram: the continuation of the longest suffix seen before, none where there is none."""
    try:
        from vllm.v1.spec_decode.ngram_proposer import (
            _find_longest_matched_ngram_and_propose_tokens as propose,
        )
    except ImportError as error:
        raise missing("vLLM's n-gram proposer", error) from error
    rng = np.random.default_rng(context.seed)
    least, most, k = 2, 4, 5
    tried = hit = 0
    for _ in range(400):
        text = rng.integers(0, 6, int(rng.integers(3, 60))).astype(np.int32)
        got = [int(t) for t in propose(text, least, most, 4096, k)]
        wanted = _continuation(text.tolist(), least, most, k)
        if got != wanted:
            raise Wrong(f"after {text.tolist()}: proposes {got}, must propose {wanted}")
        tried, hit = tried + 1, hit + bool(wanted)
    return Passed(f"{tried} texts exact, {hit} with a match")


def _continuation(text: list[int], least: int, most: int, k: int) -> list[int]:
    """By its definition.

    The longest suffix of `least` to `most` tokens, at its first earlier place.
    """
    for n in range(min(most, len(text) - 1), least - 1, -1):
        suffix = text[-n:]
        for at in range(len(text) - n):
            if text[at : at + n] == suffix:
                return text[at + n : at + n + k]
    return []


def _same(what: str, got: Any, wanted: Any, k: int, batch: int) -> None:
    values = got.cpu().numpy()
    if not np.array_equal(values, np.asarray(wanted)):
        at = int(np.flatnonzero(values != np.asarray(wanted))[0])
        raise Wrong(
            f"{what} {at} (K {k}, batch {batch}): {values[at]}, must be {np.asarray(wanted)[at]}"
        )
