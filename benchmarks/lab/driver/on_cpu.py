"""Groups that need no GPU: what they count holds, their times are nobody's."""

from __future__ import annotations

from driver.kinds import SHAREGPT, Arm, Bench, Group, Traffic, eagle

_SHIFTS = tuple(
    Traffic(phase, dataset, ("--warmup", "0", *more), part, seconds, 8, tokens)
    for phase, dataset, more, part, seconds, tokens in (
        ("baseline", SHAREGPT, (), 0, 120, 128),
        ("known-1", SHAREGPT, (), 1, 120, 128),
        ("chinese", "chinese.jsonl", (), 0, 120, 128),
        ("known-2", SHAREGPT, (), 2, 120, 128),
        ("translate", "translate.jsonl", (), 0, 120, 48),
        ("known-3", SHAREGPT, (), 3, 120, 128),
        ("sampled", SHAREGPT, ("--temperature", "0.7"), 4, 45, 128),
    )
)
_NOISY, _NOISES = 0.3, (0.1, 1.0)
_SPREADS = (0.0, 0.1, 0.3, 0.6)
_CHANGED = ("german.jsonl", "chinese.jsonl", "translate.jsonl", "logs.jsonl")
_ON_CPU = ("--enforce-eager", "--per-request-spec-decode-metrics", "summary")

ON_CPU = (
    *(
        Group(
            f"cpu{name}",
            "small",
            (
                Arm("baseline", dense=True),
                eagle(dense=True, extra=_ON_CPU),
            ),
            (
                Bench(
                    "shifts",
                    420,
                    "8",
                    "16",
                    (SHAREGPT, "mtbench", "humaneval", *_CHANGED),
                    ("eagle3",),
                    repeats=1,
                    max_tokens=96,
                ),
                Bench(
                    "lossless",
                    500,
                    "32,1",
                    "32,16",
                    repeats=1,
                    more=("--keep-texts",),
                ),
            ),
            extra=more,
            start_s=90,
            cpu=True,
            max_num_seqs=32,
            traffic=_SHIFTS,
        )
        for name, more in (("", ()), ("-float32", ("--dtype", "float32")))
    ),
    Group(
        "cpu-mixture",
        "small",
        (
            eagle("dense", dense=True, extra=_ON_CPU),
            *(eagle(f"spread-{s:g}", spread=s, extra=_ON_CPU) for s in _SPREADS),
            *(eagle(f"noise-{n:g}", spread=_NOISY, noise=n, extra=_ON_CPU) for n in _NOISES),
        ),
        (
            *(
                Bench(arm, 400, "32,1", "32,32", arms=(arm,), repeats=1, max_tokens=64)
                for arm in ("dense", *(f"spread-{s:g}" for s in _SPREADS))
            ),
            *(
                Bench(arm, 150, "32", "32", arms=(arm,), repeats=1, max_tokens=64)
                for arm in (f"noise-{n:g}" for n in _NOISES)
            ),
        ),
        max_num_seqs=32,
        start_s=300,
        notes=("one after the other; acceptance is what is measured",),
        cpu=True,
        in_turn=True,
    ),
)
