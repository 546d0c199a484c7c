"""Rejection sampling.

Every pattern of acceptance, judged exactly; distributions, judged by chi-square.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels_check import cases, engines, own
from kernels_check.cases import GREEDY, RANDOM, Case
from kernels_check.judge import Engine, judge
from kernels_check.model import Context, Passed, Wrong
from kernels_check.reference import stats

DEPTHS = (1, 3, 5, 7, 15)
BATCHES = (1, 2, 7, 8, 31, 32)
VOCABULARIES = (32000, 151936, 201088)
LEAST_P = 1e-6
"""A right kernel fails a chi-square test once in a million."""


def engine_of(name: str, mutant: int = 0) -> Engine:
    """By name: vllm-v1, vllm-v2, vllm-v2-block, own, own-bf16."""
    if name == "vllm-v1":
        return engines.VllmV1()
    if name.startswith("vllm-v2"):
        return engines.VllmV2(block=name.endswith("block"))
    return own.Own(mutant, bf16=name == "own-bf16")


def grid(context: Context) -> Passed:
    """Every K x batch x vocabulary, ragged, every count of acceptance, ids 0, vocab - 1 and -1."""
    engine = engine_of(context.options["engine"], context.options.get("mutant", 0))
    device = context.options.get("device", "cuda")
    looked_at = steps = 0
    for case, seed in _cases(engine, context, device):
        out = engine.run(case, seed)
        looked_at += judge(engine, case, out, seed)
        steps += 1
    return Passed(
        f"{steps} verify steps, {looked_at} positions exact",
        {"steps": steps, "positions": looked_at},
    )


def _cases(engine: Engine, context: Context, device: str) -> Iterator[tuple[Case, int]]:
    options = context.options
    seed = context.seed
    for vocab in options.get("vocabularies", VOCABULARIES):
        for k in options.get("depths", DEPTHS):
            for batch in options.get("batches", BATCHES):
                seed += 1
                yield make(engine, context.options, k, batch, vocab, seed, device), seed


def make(
    engine: Engine, options: Any, k: int, batch: int, vocab: int, seed: int, device: str
) -> Case:
    """One case of the grid."""
    rng = np.random.default_rng(seed)
    lengths = cases.ragged(k, batch, rng)
    accepted = cases.accepted_counts(lengths, seed)
    mode = options["mode"]
    modes = [{"greedy": GREEDY, "random": RANDOM}.get(mode, i % 2) for i in range(batch)]
    case = cases.build(
        k=k,
        vocab=vocab,
        lengths=lengths,
        accepted=accepted,
        tokens=cases.draft_tokens(
            lengths, accepted, vocab, rng, padded=bool(options.get("padded", True))
        ),
        modes=modes,
        accept_u=engine.uniforms(lengths, seed),
        with_draft=bool(options.get("draft", False)),
        seed=seed,
        device=device,
    )
    case.name = f"K {k}, batch {batch}, vocabulary {vocab}, {mode}, seed {seed}"
    if options.get("bf16", False):
        case.logits = case.logits.bfloat16().float()
    if options.get("strided", False):
        wide = case.logits.new_empty((case.logits.shape[0], vocab + 64))
        wide[:, :vocab] = case.logits
        case.logits = wide[:, :vocab]
    return case


def distribution(context: Context) -> Passed:
    """At least 10^6 steps of K = 2.

    What is emitted at both positions has the target's distribution. Block verification promises
    that for whole sequences: where it stopped after one token, the next step's is drawn here.
    """
    import torch

    engine = engine_of(context.options["engine"], context.options.get("mutant", 0))
    engine.seeded = engine.name.startswith("own")
    vocab, batch = int(context.options.get("vocab", 997)), int(context.options.get("batch", 16384))
    rounds = int(context.options.get("rounds", 64))
    with_draft = bool(context.options.get("draft", False))
    generator = torch.Generator(device="cuda").manual_seed(context.seed)
    shapes = torch.randn((4, vocab), generator=generator, device="cuda") * 2.0
    shapes[1] = shapes[0] + 0.7 * shapes[1] / 2
    target = torch.stack([shapes[0], shapes[2], shapes[3]])
    draft = torch.stack([shapes[1], shapes[3]])
    p = torch.softmax(target.double(), -1).cpu().numpy()
    p /= p.sum(-1, keepdims=True)
    counts, rng = np.zeros((3, vocab)), np.random.default_rng(context.seed)
    for turn in range(rounds):
        case, seed = _identical(
            engine, target, draft, batch, with_draft, context.seed + turn, generator
        )
        out = engine.run(case, seed).long()
        for position in range(3):
            column = out[:, position]
            missing, column = int((column < 0).sum()), column[column >= 0]
            if engine.block and position == 1:
                counts[1] += rng.multinomial(missing, p[1])
            counts[position] += torch.bincount(column, minlength=vocab)[:vocab].cpu().numpy()
    return _compare(engine.name, counts, p, batch * rounds)


def _identical(
    engine: Engine,
    target: Any,
    draft: Any,
    batch: int,
    with_draft: bool,
    seed: int,
    generator: Any,
) -> tuple[Case, int]:
    """`batch` requests alike, their drafts drawn from the draft's distribution (K = 2)."""
    import torch

    drawn = torch.multinomial(torch.softmax(draft, -1), batch, True, generator=generator).T
    lengths = [2] * batch
    case = Case(
        "distribution",
        target.shape[-1],
        lengths,
        drawn.tolist(),
        [RANDOM] * batch,
        engine.uniforms(lengths, seed),
        target.repeat(batch, 1),
        draft.repeat(batch, 1) if with_draft else None,
        2,
    )
    return case, seed


def _compare(name: str, counts: Any, p: Any, draws: int) -> Passed:
    """First and second emitted tokens; the bonus is judged by the grid where it is drawn."""
    found = {}
    for position in (0, 1):
        seen = counts[position]
        total = seen.sum()
        statistic, freedom, chance = stats.chi_square(seen, p[position] * total)
        found[f"position {position}"] = {
            "draws": int(total),
            "chi_square": round(statistic, 1),
            "freedom": freedom,
            "p": chance,
        }
        if chance < LEAST_P:
            raise Wrong(
                f"{name}: what is emitted at position {position} is not the target's distribution: "
                f"chi-square {statistic:.0f} with {freedom} degrees of freedom over {int(total)} "
                f"draws, p = {chance:.1e}",
                found,
            )
    least = min(one["p"] for one in found.values())
    return Passed(
        f"{draws} steps: the target's distribution at both positions, p >= {least:.3f}", found
    )


def edges(context: Context) -> Passed:
    """U exactly p / q, q = 0 where p > 0, p = 0, padding.

    On the V1 kernel itself, probabilities given.
    """
    import torch

    engine = engines.VllmV1()
    vocab = 4099
    table = (
        (0.25, 0.5, 0.5, True),
        (0.25, 0.5, float(np.nextafter(0.5, 1.0)), False),
        (0.5, 0.25, 1.0, True),
        (0.25, 0.0, 0.1, False),
        (0.0, 0.5, float(np.nextafter(0.0, 1.0)), False),
        (0.125, 0.125, 1.0, True),
    )
    for place in (0, vocab // 2, vocab - 1):
        for p, q, u, accepted in table:
            ids = torch.tensor([place], dtype=torch.int32, device="cuda")
            target = _two_point(vocab, place, p)
            draft = _two_point(vocab, place, q)
            out = torch.full((1, 2), -1, dtype=torch.int32, device="cuda")
            one = torch.ones(1, dtype=torch.int32, device="cuda")
            engine.module.rejection_random_sample_kernel[(1,)](
                out, one, ids, draft, target, one * 7, one * 9,
                torch.tensor([u], dtype=torch.float64, device="cuda"),
                torch.zeros(1, dtype=torch.bool, device="cuda"), 1, vocab, None,
                NO_DRAFT_PROBS=False, SYNTHETIC_MODE=False,
            )  # fmt: skip
            wanted = [place, 7] if accepted else [9, -1]
            if out.tolist() != [wanted]:
                raise Wrong(
                    f"p {p}, q {q}, u {u!r} at id {place}: {out.tolist()}, must be {wanted}"
                )
    return Passed(f"{3 * len(table)} thresholds exact")


def _two_point(vocab: int, place: int, p: float) -> Any:
    """A distribution with `p` at `place` and the rest beside it."""
    import torch

    row = torch.zeros((1, vocab), device="cuda")
    row[0, (place + 1) % vocab] = 1 - p
    row[0, place] = p
    return row


def module_path(context: Context) -> Passed:
    """The V1 sampler as the engine calls it.

    Metadata, non-contiguous logits, temperature, its own bonus.
    """
    import torch
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    steps = 0
    for k in (1, 3, 7):
        for vocab in (32000, 151936):
            engine = engines.VllmV1()
            case = make(
                engine, {"mode": "greedy", "strided": True}, k, 8, vocab, context.seed + k, "cuda"
            )
            lengths = torch.tensor(case.lengths)
            ends = (lengths + 1).cumsum(0)
            every = torch.arange(int(ends[-1]))
            target = every[~torch.isin(every, ends - 1)]
            meta = SpecDecodeMetadata(
                torch.tensor(case.flat_tokens, dtype=torch.int32, device="cuda"),
                case.lengths,
                lengths.cumsum(0).int().cuda(),
                ends.int().cuda(),
                target.int().cuda(),
                (ends - 1).int().cuda(),
                every.int().cuda(),
            )
            sampling = _sampling_metadata(SamplingMetadata, greedy=True)
            sampler = RejectionSampler(Sampler())
            out = sampler(meta, None, case.logits, sampling).sampled_token_ids
            judge(engine, case, out, context.seed)
            steps += 1
    return Passed(f"{steps} steps through the module, logits not contiguous")


def _sampling_metadata(kind: Any, *, greedy: bool) -> Any:
    import dataclasses

    from vllm.v1.sample.logits_processor import LogitsProcessors

    values: dict[str, Any] = {
        "temperature": None,
        "all_greedy": greedy,
        "all_random": not greedy,
        "top_p": None,
        "top_k": None,
        "generators": {},
        "max_num_logprobs": None,
        "no_penalties": True,
        "output_token_ids": [],
        "bad_words_token_ids": {},
        "logitsprocs": LogitsProcessors(),
    }
    for one in dataclasses.fields(kind):
        missing = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if missing and one.name not in values:
            values[one.name] = None
    return kind(**values)
