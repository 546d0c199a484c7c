"""A tiny Llama and heads for it whose acceptance is known before they run.

    .vllm/bin/python tests/e2e/tiny_pair.py OUT [--vocab 496 --cycle 41 --wrong 0.25 --k 3 --seed 0]

The target is a real `LlamaForCausalLM` whose greedy continuation walks a permutation of the
vocabulary: cycles of a fixed length, so that an n-gram drafter finds repeats. A head walks the
same permutation, except after the tokens it has wrong, whose share is chosen and alike in every
cycle. So for given prompts every draft and accepted token can be told beforehand by walking the
permutation (`Plan.expected`), and `design.json` holds the answer for evenly spread traffic.

OUT gets `target`, `eagle3`, `peagle`, `draft` (for `draft_model`), about 1.5 MB, and `design.json`.
Planning needs the standard library alone; building needs torch, safetensors and tokenizers.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Tensors = dict[str, Any]
"""Weights by name. Any, because torch is in the server's environment and not in the tests'."""

SPECIALS = ("<s>", "</s>", "<pad>", "<mask>")
METHODS = ("eagle3", "peagle", "draft")
LAYERS, HIDDEN, HEAD = 4, 64, 32
AUX_LAYERS = (1, 2, 3)
MAX_LENGTH = 2048
SHARPNESS = 0.25
"""Scale of the output layers: smaller is flatter, and closer to a coin toss when sampling."""


@dataclass(frozen=True)
class Expected:
    """What an engine's counters go up by, or a long run's averages."""

    drafts: int
    accepted_per_position: tuple[int, ...]

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Accepted at each position, of all drafts."""
        return tuple(accepted / self.drafts for accepted in self.accepted_per_position)

    @property
    def acceptance_length(self) -> float:
        """Tokens per verified draft, the target's own token included."""
        return 1 + sum(self.accepted_per_position) / self.drafts


@dataclass(frozen=True)
class Plan:
    """The permutation, and what the heads have wrong in it."""

    vocab: int
    cycles: tuple[tuple[int, ...], ...]
    wrong: frozenset[int]
    """The tokens after which the heads propose a token that the target will not."""
    k: int

    @classmethod
    def make(cls, vocab: int, cycle: int, wrong: float, k: int, seed: int) -> Plan:
        ordinary = vocab - len(SPECIALS)
        if ordinary % cycle:
            raise ValueError(f"{ordinary} ordinary tokens do not make whole cycles of {cycle}")
        chance = random.Random(seed)
        tokens = chance.sample(range(ordinary), ordinary)
        cycles = tuple(tuple(tokens[i : i + cycle]) for i in range(0, ordinary, cycle))
        # The same share in every cycle, or acceptance would depend on which ones the traffic walks.
        bad = frozenset(t for each in cycles for t in chance.sample(each, round(wrong * cycle)))
        return cls(vocab, cycles, bad, k)

    @classmethod
    def load(cls, design: Path) -> Plan:
        """Reads back the plan that a pair was built from."""
        plan = json.loads(design.read_text())["plan"]
        cycles = tuple(tuple(cycle) for cycle in plan["cycles"])
        return cls(plan["vocab"], cycles, frozenset(plan["wrong"]), plan["k"])

    def following(self) -> dict[int, int]:
        """The target's next token. A special leads into a cycle, so none is ever produced."""
        pairs = {
            a: b for each in self.cycles for a, b in zip(each, each[1:] + each[:1], strict=True)
        }
        first = self.vocab - len(SPECIALS)
        return pairs | {first + i: self.cycles[0][i] for i in range(len(SPECIALS))}

    def proposed(self) -> dict[int, int]:
        """The heads' next token: the wrong ones take the next wrong one's."""
        following, bad = self.following(), sorted(self.wrong)
        return following | {a: following[b] for a, b in zip(bad, bad[1:] + bad[:1], strict=True)}

    def prompts(self, n: int, length: int = 8) -> list[list[int]]:
        """`n` prompts of token ids: every cycle in turn, each time from another place in it."""
        made = []
        for i in range(n):
            lap, which = divmod(i, len(self.cycles))
            cycle = self.cycles[which]
            start = (lap * 7 + which * 3) % len(cycle)  # 7 is prime to the length: 41 laps differ
            made.append([cycle[(start + j) % len(cycle)] for j in range(length)])
        return made

    def reach(self, method: str) -> int:
        """How many positions of a method's drafts can be right.

        P-EAGLE's later positions are made from mask tokens, which carry no part of the map here, as
        in a head that was barely trained.
        """
        return 1 if method == "peagle" else self.k

    def expected(self, method: str, prompts: list[list[int]], max_tokens: int) -> Expected:
        """Exactly what greedy decoding of these prompts does, by walking it."""
        following, reach = self.following(), self.reach(method)
        drafts, accepted_per_position = 0, [0] * self.k
        for prompt in prompts:
            token = following[prompt[-1]]  # the prompt's own step yields one, and a first draft
            produced = 1
            while produced < max_tokens:
                drafts += 1
                accepted = 0
                while accepted < reach and token not in self.wrong:
                    accepted_per_position[accepted] += 1
                    token = following[token]
                    accepted += 1
                token = following[token]
                produced += accepted + 1
        return Expected(drafts, tuple(accepted_per_position))

    def design(self) -> dict[str, Any]:
        """What `design.json` holds: the plan, and what evenly spread traffic comes to."""
        everywhere = [[token] for cycle in self.cycles for token in cycle]
        summary = {}
        for method in METHODS:
            run = self.expected(method, everywhere, 1000)
            summary[method] = {
                "acceptance_by_position": [round(share, 4) for share in run.acceptance],
                "acceptance_length": round(run.acceptance_length, 4),
            }
        plan = asdict(self) | {"wrong": sorted(self.wrong)}
        return {"k": self.k, "methods": summary, "plan": plan}


def build(out: Path, plan: Plan, seed: int = 0) -> dict[str, Any]:
    """Writes the pair of `plan` under `out` and returns its design."""
    import torch

    noise = torch.Generator().manual_seed(seed)
    vocab, following, proposed = plan.vocab, plan.following(), plan.proposed()
    # RMSNorm leaves +-1 as it is, so an embedding reaches the output layer nearly unchanged.
    embeddings = torch.randint(0, 2, (vocab, HIDDEN), generator=noise).float() * 2 - 1

    def output_layer(mapping: dict[int, int]) -> Any:
        head = torch.zeros(vocab, HIDDEN)
        for token, after in mapping.items():
            if token < vocab - len(SPECIALS):
                head[after] += SHARPNESS * embeddings[token]
        return head

    def layer(prefix: str, width: int = HIDDEN) -> Tensors:
        shapes = {
            "self_attn.q_proj": (HIDDEN, width),
            "self_attn.k_proj": (HIDDEN, width),
            "self_attn.v_proj": (HIDDEN, width),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "mlp.gate_proj": (2 * HIDDEN, HIDDEN),
            "mlp.up_proj": (2 * HIDDEN, HIDDEN),
            "mlp.down_proj": (HIDDEN, 2 * HIDDEN),
        }
        norms = ("input_layernorm", "post_attention_layernorm")
        return {f"{prefix}.{name}.weight": torch.ones(HIDDEN) for name in norms} | {
            f"{prefix}.{name}.weight": torch.randn(*shape, generator=noise) * 0.01
            for name, shape in shapes.items()
        }

    def llama(layers: int, mapping: dict[int, int]) -> Tensors:
        tensors = {
            "model.embed_tokens.weight": embeddings,
            "model.norm.weight": torch.ones(HIDDEN),
            "lm_head.weight": output_layer(mapping),
        }
        for i in range(layers):
            tensors |= layer(f"model.layers.{i}")
        return tensors

    # A head's layer reads (embedding of the newest token, mixed states of the target). Its queries
    # and keys see the embedding alone, so that attention finds the position itself and copies its
    # embedding; the target's states add a little noise. It has no embeddings: vLLM lends it the
    # target's.
    identity, nothing = torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)
    eagle3 = layer("midlayer", 2 * HIDDEN) | {
        "midlayer.self_attn.q_proj.weight": torch.cat([2 * identity, nothing], 1),
        "midlayer.self_attn.k_proj.weight": torch.cat([2 * identity, nothing], 1),
        "midlayer.self_attn.v_proj.weight": torch.cat([identity, nothing], 1),
        "midlayer.self_attn.o_proj.weight": identity,
        "midlayer.hidden_norm.weight": torch.full((HIDDEN,), 0.02),
        "fc.weight": torch.randn(HIDDEN, len(AUX_LAYERS) * HIDDEN, generator=noise) * 0.005,
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": output_layer(proposed),
    }
    mask = torch.randn(1, 1, len(AUX_LAYERS) * HIDDEN, generator=noise) * 0.05

    config = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_attention_heads": HIDDEN // HEAD,
        "num_key_value_heads": HIDDEN // HEAD,
        "head_dim": HEAD,
        "vocab_size": vocab,
        "max_position_embeddings": MAX_LENGTH,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": vocab - 4,
        "eos_token_id": vocab - 3,
        "pad_token_id": vocab - 2,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    whole = config | {"architectures": ["LlamaForCausalLM"]}
    head = config | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": vocab,
        "target_hidden_size": HIDDEN,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": AUX_LAYERS,
    }
    _save(out / "target", whole | {"num_hidden_layers": LAYERS}, llama(LAYERS, following))
    _save(out / "draft", whole | {"num_hidden_layers": 1}, llama(1, proposed))
    _save(out / "eagle3", head, eagle3)
    _save(out / "peagle", head | {"ptd_token_id": vocab - 1}, eagle3 | {"mask_hidden": mask})
    for name in ("target", "draft"):
        _save_tokenizer(out / name, vocab)

    design = plan.design()
    (out / "design.json").write_text(json.dumps(design))  # last: it says that the pair is whole
    return design


def _save(folder: Path, config: dict[str, Any], tensors: Tensors) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    half = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(half, str(folder / "model.safetensors"), metadata={"format": "pt"})


def _save_tokenizer(folder: Path, vocab: int) -> None:
    """Byte-level BPE: 256 bytes, merges up to the vocabulary's size, the specials last."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = (
        "draft",
        "verify",
        "accept",
        "reject",
        "token",
        "batch",
        "queue",
        "server",
        "return",
        "while",
    )
    corpus = [
        " ".join(f"{words[i * k % len(words)]}{i * k}" for i in range(40)) for k in range(1, 60)
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens(list(SPECIALS))
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f"a tokenizer of {vocab} tokens cannot be made from this corpus")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "assistant:",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    ends = {"bos_token_id": vocab - 4, "eos_token_id": vocab - 3}
    (folder / "generation_config.json").write_text(json.dumps(ends))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the tiny pair of the end-to-end tests.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--vocab", type=int, default=496, help="four specials and whole cycles")
    parser.add_argument("--cycle", type=int, default=41, help="length of the target's loops")
    parser.add_argument("--wrong", type=float, default=0.25, help="share that heads miss")
    parser.add_argument("--k", type=int, default=3, help="tokens per draft that the design is for")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    plan = Plan.make(options.vocab, options.cycle, options.wrong, options.k, options.seed)
    design = build(options.out, plan, options.seed)
    sys.stdout.write(json.dumps(design["methods"], indent=1) + "\n")


if __name__ == "__main__":
    main()
