"""Run with torch: heads of every kind through `draft_training.given`; what came of each as JSON."""

import json
import sys
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draft_training import export, given, head, job, prompts
from draft_training.events import Failed

SHIPPED = Path(__file__).parents[1] / "data" / "smollm2-135m-eagle3"
WIDTH, VOCABULARY, DRAFTED = 16, 50, 10


class Head:
    """What export asks of a head."""

    def __init__(self, found: given.Given, config: dict[str, Any]) -> None:
        self._weights, self._config = found.weights, config
        self.config = SimpleNamespace(to_dict=lambda: dict(self._config))

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {n: t.float() if t.is_floating_point() else t for n, t in self._weights.items()}


def round_trip(folder: Path) -> dict[str, Any]:
    """The shipped head in, and out again."""
    before = json.loads((SHIPPED / "config.json").read_text())
    found = given.read(
        SHIPPED, SimpleNamespace(hidden_size=576, vocab_size=49152, name_or_path="none")
    )
    config = {
        "transformer_layer_config": {**before, "rope_theta": found.layer["rope_theta"]},
        "draft_vocab_size": before["draft_vocab_size"],
        "norm_before_residual": found.norm_before_residual,
        "eagle_aux_hidden_state_layer_ids": list(given.aux_layers(SHIPPED) or ()),
    }
    made = job.from_dict({"target": "t", "out": str(folder), "training": {"steps": 1}})
    export.speculators(Head(found, config), made.speculators)
    export.run(made)
    old, new = (load_file(str(f / "model.safetensors")) for f in (SHIPPED, made.plain))
    after = json.loads((made.plain / "config.json").read_text())
    return {
        "names": set(old) == set(new),
        "equal": all(old[n].dtype == new[n].dtype and torch.equal(old[n], new[n]) for n in old),
        "config": sorted(k for k in {*before, *after} if before.get(k) != after.get(k)),
    }


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def scaled(at: Path) -> dict[str, Any]:
    """A head with a scaled rotary embedding in, the layer that is trained, and out again.

    As it is published with transformers 4 and with 5.
    """
    weights, config = full()
    ways: dict[str, dict[str, Any]] = {
        "4": {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
        "5": {"rope_parameters": {**LLAMA3, "rope_theta": 500000.0}},
    }
    told = {}
    for name, rope in ways.items():
        folder = write(at / name, weights, config | rope)
        found = given.read(folder, SimpleNamespace(**TARGET))
        trained = head._layer_config(LlamaConfig(**TARGET), found.layer)
        made = job.from_dict({"target": "t", "out": str(at / name / "o"), "training": {"steps": 1}})
        whole = {
            "transformer_layer_config": trained,
            "draft_vocab_size": DRAFTED,
            "norm_before_residual": True,
            "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
        }
        export.speculators(Head(found, whole), made.speculators)
        export.run(made)
        plain = json.loads((made.plain / "config.json").read_text())
        kept = ("rope_theta", "rope_scaling", "rope_parameters")
        again = {k: plain[k] for k in kept}
        frequencies = [
            LlamaRotaryEmbedding(layer).inv_freq
            for layer in (trained, LlamaConfig(**{**TARGET, **deepcopy(again)}))
        ]
        told[name] = again | {"same": bool(torch.equal(*frequencies))}
    return told


def small() -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A head of the plain form: three states wide, ten tokens of fifty."""
    ids = torch.arange(DRAFTED) * 3
    weights = {
        "fc.weight": torch.randn(WIDTH, 3 * WIDTH),
        "lm_head.weight": torch.randn(DRAFTED, WIDTH),
        "norm.weight": torch.ones(WIDTH),
        "midlayer.hidden_norm.weight": torch.ones(WIDTH),
        "d2t": ids - torch.arange(DRAFTED),
        "t2d": torch.zeros(VOCABULARY, dtype=torch.bool).index_fill(0, ids, True),
    }
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": DRAFTED,
        "intermediate_size": 48,
        "hidden_size": WIDTH,
    }
    return weights, config


def write(folder: Path, weights: dict[str, torch.Tensor], config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    save_file(weights, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def read(folder: Path, width: int = WIDTH, vocabulary: int = VOCABULARY, name: str = "none") -> Any:
    target = SimpleNamespace(hidden_size=width, vocab_size=vocabulary, name_or_path=name)
    try:
        return given.read(folder, target)
    except Failed as failed:
        return {"kind": failed.kind, "message": str(failed), "fix": failed.fix}


def orders(at: Path, weights: dict[str, torch.Tensor], config: dict[str, Any]) -> dict[str, Any]:
    """A head whose draft tokens are in another order, and one with more of them."""
    known = read(write(at / "known", weights, config)).weights
    mixed = torch.randperm(DRAFTED)
    ids = (weights["d2t"] + torch.arange(DRAFTED))[mixed]
    other = {"d2t": ids - torch.arange(DRAFTED), "lm_head.weight": weights["lm_head.weight"][mixed]}
    sorted_ = read(write(at / "mixed", {**weights, **other}, config)).weights
    rows, often = torch.randn(VOCABULARY, WIDTH), torch.zeros(VOCABULARY, dtype=torch.long)
    often[[1, 4, 3, 49]] = torch.tensor([5, 9, 99, 7])  # 3 is drafted before
    wide = given.widened(known, often, DRAFTED + 2, rows)
    all_ = given.widened(known, often, VOCABULARY, rows)
    new = wide["d2t"] + torch.arange(DRAFTED + 2)
    return {
        "order": all(torch.equal(known[n], sorted_[n]) for n in known),
        "added": sorted({*new.tolist()} - {*range(0, 30, 3)}),
        "seen": int(all_["t2d"].sum()) - DRAFTED,
        "rows": bool(torch.equal(wide["lm_head.weight"][new.tolist().index(4)], rows[4])),
        "kept": bool(torch.equal(wide["lm_head.weight"][new % 3 == 0], known["lm_head.weight"])),
        "same": all(
            torch.equal(known[n], t) for n, t in given.widened(known, often, 5, rows).items()
        ),
    }


TARGET = {
    "hidden_size": WIDTH,
    "vocab_size": VOCABULARY,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "name_or_path": "",
}


def full() -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The small head with every tensor of its layer."""
    weights, config = small()
    for name, shape in {
        "input_layernorm": (WIDTH,),
        "post_attention_layernorm": (WIDTH,),
        "self_attn.q_proj": (16, 2 * WIDTH),
        "self_attn.k_proj": (8, 2 * WIDTH),
        "self_attn.v_proj": (8, 2 * WIDTH),
        "self_attn.o_proj": (WIDTH, 16),
        "mlp.gate_proj": (48, WIDTH),
        "mlp.up_proj": (48, WIDTH),
        "mlp.down_proj": (WIDTH, 48),
    }.items():
        weights[f"midlayer.{name}.weight"] = torch.ones(shape)
    return weights, config


class Config(SimpleNamespace):
    def get_text_config(self) -> Any:
        return self


class Tokenizer:
    chat_template = "there is one"

    def apply_chat_template(self, messages: Any, **_: Any) -> str:
        return str(messages[0]["content"])

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": list(range(len(text)))}


def first_stage(at: Path, folder: Path, **more: Any) -> str:
    """What the stage `prompts` says of a head to go on from."""
    (at / "p.jsonl").write_text('{"messages": [{"role": "user", "content": "hello"}]}')
    document: dict[str, Any] = {"target": "t", "out": str(at / "out")}
    document |= {"prompts": str(at / "p.jsonl")}
    document |= {"init": str(folder), "training": {"steps": 1}, **more}
    target = at / "target"
    target.mkdir(exist_ok=True)
    (target / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    kinds = (
        (AutoTokenizer, lambda _: Tokenizer()),
        (AutoConfig, lambda _: Config(**{**TARGET, "name_or_path": target})),
    )
    with ExitStack() as stack:
        for kind, made in kinds:
            stack.enter_context(mock.patch.object(kind, "from_pretrained", made))
        try:
            return f"{prompts.run(job.from_dict(document))['prompts']} prompts"
        except Failed as failed:
            return f"{failed.kind}: {failed}"


def strange(at: Path, weights: dict[str, torch.Tensor], config: dict[str, Any]) -> dict[str, Path]:
    """Folders that others left half done."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    name = "eagle_aux_hidden_state_layer_ids"
    made = {
        "flat_fc": ({**weights, "fc.weight": torch.ones(48)}, config),
        "flat_lm_head": ({**weights, "lm_head.weight": torch.ones(48)}, config),
        "aux_number": (weights, config | {name: 5}),
        "aux_words": (weights, config | {name: ["1", 2, 3]}),
        "eagle_list": (weights, config | {"eagle_config": [1]}),
        "tied": ({n: t for n, t in weights.items() if n != "lm_head.weight"}, config),
        "negative": ({**weights, "d2t": weights["d2t"] - 1}, config),
        "heads_word": (weights, config | {"num_attention_heads": "many"}),
        "layer_list": (weights, config | {"transformer_layer_config": [1]}),
        "flat_map": ({**weights, "d2t": torch.tensor(3)}, config),
        "token_pointer": (weights, config),
        "token_list": (weights, config),
    }
    folders = {n: write(at / f"s_{n}", *m) for n, m in made.items()}
    (folders["token_pointer"] / "tokenizer.json").write_bytes(pointer)
    (folders["token_list"] / "tokenizer.json").write_text("[1]")
    for case, held in {"pointer": pointer, "empty": b"", "words": b"no tensors"}.items():
        folders[case] = at / f"s_{case}"
        folders[case].mkdir()
        (folders[case] / "config.json").write_text(json.dumps(config))
        (folders[case] / "pytorch_model.bin").write_bytes(held)
    folders["no_tensors"] = at / "s_no_tensors"
    folders["no_tensors"].mkdir()
    (folders["no_tensors"] / "config.json").write_text(json.dumps(config))
    torch.save({"state_dict": weights}, folders["no_tensors"] / "pytorch_model.bin")
    return folders


def judged(at: Path) -> dict[str, str]:
    """Heads that are whole, and some that are not, before anything is answered."""
    weights, config = full()
    aux = {"eagle_aux_hidden_state_layer_ids": [1, 2, 999]}
    q_proj = "midlayer.self_attn.q_proj.weight"
    made = {
        "whole": (weights, config),
        "part": ({n: t for n, t in weights.items() if n != q_proj}, config),
        "other_heads": ({**weights, q_proj: torch.ones(8, 2 * WIDTH)}, config),
        "no_place": ({**weights, "midlayer.self_attn.q_norm.weight": torch.ones(4)}, config),
        "far_layer": (weights, config | aux),
        "two_states": (weights, config | {"eagle_aux_hidden_state_layer_ids": [1, 2]}),
        "embeddings": ({**weights, "embed_tokens.weight": torch.ones(40, WIDTH)}, config),
    }
    told = {name: first_stage(at, write(at / f"j_{name}", *m)) for name, m in made.items()}
    told |= {n: first_stage(at, f) for n, f in strange(at, weights, config).items()}
    told["other_layers"] = first_stage(
        at,
        write(at / "ol", weights, config | {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}),
        aux_layers=[1, 2, 4],
    )
    return told


def kinds(at: Path) -> dict[str, Any]:
    """Every case by its name."""
    told: dict[str, Any] = {}
    weights, config = small()
    folder = at / "published"
    folder.mkdir()
    torch.save({f"model.{n}": t for n, t in weights.items()}, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(config))
    found = read(folder)
    assert "layers.0.hidden_norm.weight" in found.weights
    told["as_published"] = {
        "norm_before_residual": found.norm_before_residual,
        "aux": given.aux_layers(folder),
        "layer": WIDTH * found.layer["intermediate_size"] // WIDTH // WIDTH,
    }
    whole = {n: t for n, t in weights.items() if n not in ("d2t", "t2d")}
    whole["lm_head.weight"] = torch.randn(VOCABULARY, WIDTH)
    bare = read(write(at / "whole", whole, {**config, "draft_vocab_size": VOCABULARY}))
    only_t2d = read(write(at / "t2d", {n: t for n, t in weights.items() if n != "d2t"}, config))
    assert bool(bare.weights["t2d"].all()), "a head without maps drafts every token"
    assert torch.equal(only_t2d.weights["d2t"], weights["d2t"])
    told["without_maps"] = "ok"

    told |= orders(at, weights, config)

    def changed(name: str, **tensors: torch.Tensor) -> Path:
        renamed = {k.replace("__", "."): t for k, t in tensors.items()}
        return write(at / name, {**weights, **renamed}, config)

    told["no_fc"] = read(
        write(at / "no_fc", {n: t for n, t in weights.items() if n != "fc.weight"}, config)
    )
    told["eagle1"] = read(changed("eagle1", fc__weight=torch.randn(WIDTH, 2 * WIDTH)))
    told["other_width"] = read(changed("wide"), width=2 * WIDTH)
    told["other_vocabulary"] = read(changed("vocabulary", t2d=weights["t2d"][:40]))
    (changed("no_config") / "config.json").unlink()
    told["no_config"] = read(at / "no_config")
    (changed("damaged") / "model.safetensors").write_bytes(b"x" * 100)
    told["damaged"] = read(at / "damaged")
    told["twice"] = read(changed("twice", d2t=-torch.arange(DRAFTED)))
    told["past_the_end"] = read(changed("past", d2t=torch.full((DRAFTED,), 60)))
    told["maps_differ"] = read(changed("differ", d2t=torch.zeros(DRAFTED, dtype=torch.long)))
    told["norm_before_fc"] = read(write(at / "nbf", weights, {**config, "norm_before_fc": True}))
    told["sizes"] = read(write(at / "sizes", weights, {**config, "draft_vocab_size": 11}))
    for name, ids in (("tokens", {"a": 0}), ("target", {"b": 0})):
        (changed(name) / "tokenizer.json").write_text(json.dumps({"model": {"vocab": ids}}))
    told["other_tokenizer"] = read(at / "tokens", name=str(at / "target"))
    assert isinstance(read(at / "tokens", name=str(at / "tokens")), given.Given)
    return told


if __name__ == "__main__":
    place = Path(sys.argv[1])
    made = {"round": round_trip(place / "round"), **kinds(place), "judged": judged(place)}
    made["scaled"] = scaled(place / "scaled")
    sys.stdout.write(json.dumps(made))
