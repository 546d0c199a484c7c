"""What is measured: groups of servers that are up at once on one GPU, and the benches of each.

A group's servers share the GPU, since an idle one launches nothing; `specctl bench run` asks one
at a time, in turns. So no two measurements overlap, and clocks, heat and neighbours meet all arms
alike.
"""

from __future__ import annotations

from driver.kinds import LADDER, SHAREGPT, Arm, Bench, Group, Traffic
from driver.kinds import eagle as _eagle
from driver.on_cpu import ON_CPU

__all__ = ["GROUPS", "LADDER", "SHAREGPT", "Arm", "Bench", "Group", "Traffic"]

_SETS = ("mtbench", "humaneval", "operators.jsonl")

GROUPS = {
    group.name: group
    for group in (
        Group(
            "8b",
            "8b",
            (
                Arm("baseline"),
                _eagle(),
                Arm("p-eagle", "p-eagle", 3, "p-eagle"),
                Arm("ngram", "ngram"),
                Arm("draft-model", "draft_model", 3, "1b", kv_gib=8.0),
            ),
            (
                Bench("arms", 305),
                Bench(
                    "sets",
                    60,
                    "1,32",
                    "12,64",
                    _SETS,
                    ("baseline", "eagle3"),
                    repeats=1,
                ),
                Bench(
                    "sampled",
                    40,
                    "1,32",
                    "16,96",
                    arms=("baseline", "eagle3"),
                    more=("--temperature", "0.7"),
                ),
                Bench(
                    "structured",
                    45,
                    "1,32",
                    "8,64",
                    ("operators.jsonl",),
                    ("baseline", "eagle3"),
                    max_tokens=256,
                    more=("--structured", "SCHEMA"),
                ),
                Bench(
                    "lossless",
                    20,
                    "8",
                    "64",
                    arms=("baseline", "eagle3", "p-eagle"),
                    repeats=1,
                    more=("--keep-texts",),
                ),
            ),
            notes=(
                "draft-model: the target itself as a 1B of 30 layers, an upper bound of acceptance",
            ),
        ),
        *(
            Group(
                name,
                "8b",
                (Arm("baseline"), *(_eagle(f"k{k}", k) for k in depths)),
                (Bench("sweep", 40 * (1 + len(depths)), "1,8,32,128", "16,48,96,256", repeats=2),),
                notes=(f"K = {', '.join(map(str, depths))}: five servers are what fits",),
            )
            for name, depths in (("8b-k", (1, 2, 3, 5)), ("8b-k2", (4, 6, 7)))
        ),
        Group(
            "8b-graphs",
            "8b",
            (
                Arm("baseline"),
                _eagle("full"),
                _eagle("scheduled", 5, schedule=True),
                _eagle("eager", extra=("--enforce-eager",)),
                _eagle("short", extra=("--max-cudagraph-capture-size", "64")),
            ),
            (
                Bench(
                    "graphs",
                    90,
                    "3,13,27,100",
                    "24,52,108,300",
                    arms=("baseline", "full", "eager", "short"),
                ),
                Bench(
                    "schedule",
                    90,
                    "4,16,48,96,128",
                    "32,64,144,288,384",
                    arms=("baseline", "full", "scheduled"),
                ),
                Bench(
                    "lossless",
                    20,
                    "8",
                    "64",
                    arms=("baseline", "full"),
                    repeats=1,
                    more=("--keep-texts",),
                ),
            ),
            notes=("short: graphs to 64 tokens, so that 16 requests at K = 3 are the last inside",),
        ),
        Group(
            "32b",
            "32b",
            (
                Arm("baseline", weights="fp8", kv_gib=7.7),
                _eagle(k=5, weights="fp8", kv_gib=7.7),
                Arm("ngram", "ngram", 5, weights="fp8", kv_gib=7.7),
            ),
            (
                Bench("arms", 235, requests="16,32,64,128,160", repeats=2),
                Bench("sets", 50, "1", "12", _SETS, ("baseline", "eagle3"), repeats=1),
            ),
        ),
        Group(
            "32b-head",
            "32b",
            (
                Arm("baseline", weights="fp8", kv_gib=2.0),
                _eagle(k=5, weights="fp8", kv_gib=2.0),
                _eagle("k7", 7, weights="fp8", kv_gib=2.0),
            ),
            (
                Bench("operators", 120, "1", "32", ("operators.jsonl",), repeats=1),
                Bench("sets", 90, "1", "12", (SHAREGPT, "humaneval"), repeats=1),
            ),
            start_s=215,
            notes=(
                "the head of this run's train, at batch 1; what it was trained for, then else",
                "128 at once, for at 8 vLLM 0.25.1 does not start with a head (vllm#47561)",
            ),
        ),
        Group(
            "70b",
            "70b",
            (
                Arm("baseline", weights="fp8", kv_gib=8.0),
                Arm("int4", weights="int4", kv_gib=8.0, label="baseline"),
            ),
            (
                Bench("fp8", 80, "1,8,32,64", "8,24,64,128", arms=("baseline",)),
                Bench("int4", 80, "1,8,32,64", "8,24,64,128", arms=("int4",)),
                Bench("sets", 60, "1", "12", _SETS, ("baseline",), repeats=1),
            ),
            max_num_seqs=64,
            start_s=190,
        ),
        Group(
            "70b-eagle3",
            "70b",
            (
                _eagle(k=5, weights="fp8", kv_gib=6.5),
                _eagle("int4-eagle3", 5, weights="int4", kv_gib=6.5, label="eagle3"),
            ),
            (
                Bench("fp8", 60, "1,8,32,64", "8,24,64,128", arms=("eagle3",)),
                Bench("int4", 60, "1,8,32,64", "8,24,64,128", arms=("int4-eagle3",)),
                Bench("sets", 40, "1", "12", _SETS, ("eagle3",), repeats=1),
            ),
            max_num_seqs=64,
            start_s=190,
            notes=("there is no room for its baselines: they are 70b's",),
        ),
        Group(
            "70b-bf16",
            "70b",
            (Arm("baseline", kv_gib=2.5, extra=("--max-num-batched-tokens", "2048")),),
            (Bench("arms", 60, "1,8", "6,24", repeats=2),),
            max_num_seqs=8,
            start_s=150,
            notes=(
                "131.4 GiB of weights on a GPU of 140.4: that it does not fit is an answer too",
            ),
        ),
        Group(
            "70b-tp2",
            "70b",
            (
                Arm("baseline", weights="fp8", kv_gib=5.0),
                _eagle(k=5, weights="fp8", kv_gib=5.0),
            ),
            (Bench("fp8", 110, "1,8,32,64", "8,24,64,128"),),
            max_num_seqs=64,
            gpus=2,
            start_s=280,
        ),
        *(
            Group(
                f"70b-bf16-tp2{name}",
                "70b",
                (arm,),
                (Bench("bf16", 70, "1,8,32,64", "8,24,64,128"),),
                max_num_seqs=64,
                gpus=2,
                start_s=250,
                notes=("no room for both: blocks, not interleaved",),
            )
            for name, arm in (
                ("", Arm("baseline", kv_gib=8.0)),
                ("-eagle3", _eagle(k=5, kv_gib=8.0)),
            )
        ),
        Group(
            "mixture",
            "small",
            (
                Arm("baseline", dense=True, kv_gib=4.0),
                _eagle("dense", dense=True, kv_gib=4.0),
                *(_eagle(f"spread-{s:g}", spread=s, kv_gib=4.0) for s in (0.0, 0.03, 0.1)),
            ),
            (
                Bench("routing", 380, "1,8,32,128", "12,64,128,384", repeats=1),
                Bench(
                    "lossless",
                    15,
                    "8",
                    "64",
                    arms=("baseline", "dense", "spread-0"),
                    repeats=1,
                    more=("--keep-texts",),
                ),
            ),
            extra=("--enforce-eager",),
            start_s=85,
            notes=("acceptance is what is measured; 135M eager is no speed",),
        ),
        *ON_CPU,
    )
}
