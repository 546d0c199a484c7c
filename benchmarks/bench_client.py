"""`specctl bench run` and `vllm bench serve` on the same server, prompts and concurrency, in turns.

    .venv/bin/python benchmarks/bench_client.py --tokenizer DIR [--url URL] [--concurrency 1,32]
    .venv/bin/python benchmarks/bench_client.py --out FILE      # the table of a file

Without `--url` a simulated server is started. Answers have a fixed length, the window is `whole`
(as `vllm bench serve` counts), and CPU is of the client alone, from the first measured request to
the last answer. Rounds alternate, and who is first alternates too; printed are medians and, from
the same rounds, the median of the ratios with a 95 % bootstrap interval over rounds, which tells
noise from bias. `--out` keeps every round, and a later call adds to the file.

Two figures are told a second time: tok/s from the first request sent to the last token, which is
by one definition for both, and TTFT without the first wave, which meets an idle server all at once:
the sooner a client has sent all of it, the longer the last of it waits, by its own clock.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

ROOT = Path(__file__).parents[1]
VLLM = ROOT / ".vllm" / "bin" / "python"
SIMULATED = "--engines 1 -k 3 --rate 0 --acceptance 1,1,1 --port 0"
"""Every draft is accepted: chance has no part in how fast the simulated server is."""
WAVE = "first wave sent within, ms"
SAME_SPAN = "tok/s, same span"
DRAWS = 2000
Run = dict[str, float]


@dataclass
class Bench:
    """What every round is asked on."""

    url: str
    tokenizer: str
    tokens: int
    scratch: Path
    tool: subprocess.Popen[str]
    model: str = field(init=False)

    def __post_init__(self) -> None:
        with urllib.request.urlopen(f"{self.url}/v1/models") as answer:
            self.model = json.load(answer)["data"][0]["id"]


def main() -> None:
    """Measures, then prints a table."""
    given = _arguments()
    kept = json.loads(given.out.read_text()) if given.out and given.out.exists() else {"rounds": []}
    if given.tokenizer:
        with (
            tempfile.TemporaryDirectory() as scratch,
            _server(given.url) as url,
            _tool() as tool,
        ):
            bench = Bench(url, given.tokenizer, given.output_tokens, Path(scratch), tool)
            for concurrency in map(int, given.concurrency.split(",")):
                for row in _rounds(bench, given, concurrency):
                    kept["rounds"].append(row)
                    if given.out:
                        given.out.write_text(json.dumps(kept, indent=1) + "\n")
    print("\n".join(table(kept["rounds"])))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--url", help="a server; without prefix caching, or the second to ask gains"
    )
    parser.add_argument("--tokenizer", help="a folder; vllm bench serve wants one")
    parser.add_argument("--concurrency", default="1,32,256")
    parser.add_argument("--requests", type=int, help="of each round; 4 x concurrency, 8 at least")
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="no round begins after them")
    parser.add_argument("--out", type=Path, help="a file of rounds")
    given = parser.parse_args()
    if not given.tokenizer and not given.out:
        parser.error("--tokenizer to measure, or --out of a file to print")
    return given


def _rounds(
    bench: Bench, given: argparse.Namespace, concurrency: int
) -> Iterator[dict[str, object]]:
    requests = given.requests or max(8, 4 * concurrency)
    prompts = _prompts(bench.scratch, requests)
    began = time.monotonic()
    for turn in range(given.rounds):
        if time.monotonic() - began > given.seconds:
            return
        if turn % 2:
            theirs, ours = _vllm(bench, concurrency, requests, prompts), None
        else:
            ours, theirs = _specctl(bench, concurrency, requests, prompts), None
        yield {
            "server": bench.model,
            "concurrency": concurrency,
            "requests": requests,
            "output_tokens": bench.tokens,
            "first": "vllm" if turn % 2 else "specctl",
            "specctl": ours or _specctl(bench, concurrency, requests, prompts),
            "vllm": theirs or _vllm(bench, concurrency, requests, prompts),
            "load_average": round(os.getloadavg()[0], 1),
        }


def table(rounds: Sequence[dict[str, object]]) -> Iterator[str]:
    """Markdown: medians, and of the ratios the median with its interval."""
    loads = dict.fromkeys((str(row["server"]), row["concurrency"]) for row in rounds)
    yield "| at once | | specctl | vllm bench serve | ratio |\n|---|---|---|---|---|"
    for server, concurrency in loads:
        mine = [r for r in rounds if (r["server"], r["concurrency"]) == (server, concurrency)]
        pairs: list[tuple[Run, Run]] = [(r["specctl"], r["vllm"]) for r in mine]  # type: ignore[misc]
        for name in pairs[0][0]:
            ours, theirs = (median(pair[i][name] for pair in pairs) for i in (0, 1))
            told = (
                ""
                if name == WAVE
                else _ratio([ours[name] / theirs[name] for ours, theirs in pairs])
            )
            yield f"| {concurrency} | {name} | {ours:.2f} | {theirs:.2f} | {told} |"
        loaded = [float(str(row["load_average"])) for row in mine]
        yield (
            f"<!-- {server}: {len(mine)} rounds of {mine[0]['requests']} answers of "
            f"{mine[0]['output_tokens']} tokens, load average {min(loaded)} to {max(loaded)} -->"
        )


def _ratio(ratios: list[float]) -> str:
    rng = random.Random(1)
    drawn = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    low, high = drawn[DRAWS // 40], drawn[-DRAWS // 40]
    return f"{median(ratios):.3f} [{low:.3f}, {high:.3f}]"


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    words = [sys.executable, "-m", "speccli", "sim", *SIMULATED.split()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextlib.contextmanager
def _tool() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [VLLM, ROOT / "benchmarks" / "vllm_bench_cpu.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    ) as process:
        yield process


def _prompts(scratch: Path, count: int) -> Path:
    from speccli.core.bench.datasets import load

    known = load("builtin").prompts
    rows = [{"id": f"{i:06}", "prompt": known[i % len(known)].text} for i in range(2 * count)]
    path = scratch / f"prompts-{count}.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    ordered = [{"id": p.id, "prompt": p.text} for p in load(str(path)).prompts]
    path.write_text("\n".join(json.dumps(row) for row in ordered))
    return path


def _specctl(bench: Bench, concurrency: int, requests: int, prompts: Path) -> Run:
    out = bench.scratch / "ours.json"
    out.unlink(missing_ok=True)
    words = f"bench run --arm a={bench.url} --batch {concurrency} --requests {requests}"
    words += f" --window whole --warmup {concurrency} --output-tokens {bench.tokens}"
    words += f" --dataset {prompts} --out {out} --repeats 1"
    subprocess.run(
        [sys.executable, "-m", "speccli", *words.split()], check=True, capture_output=True, cwd=ROOT
    )
    (row,) = json.loads(out.read_text())["rows"]
    assert row["state"] == "ok", row["reason"]
    samples, tokens = row["samples"], row["output_tokens"]
    return {
        "tok/s": row["output_tokens_per_s"]["value"],
        SAME_SPAN: tokens / _span(samples["start_s"], samples["e2e_s"]),
        **_waves(samples["start_s"], samples["ttft_s"], concurrency),
        "TPOT ms": 1000 * row["tpot_s"]["mean"]["value"],
        "e2e ms": 1000 * row["e2e_s"]["mean"]["value"],
        "CPU ms / 1k tokens": 1e6 * row["client"]["cpu_s"] / tokens,
    }


def _vllm(bench: Bench, concurrency: int, requests: int, prompts: Path) -> Run:
    words = "--backend openai-chat --endpoint /v1/chat/completions --dataset-name custom"
    words += f" --skip-chat-template --disable-shuffle --dataset-path {prompts}"
    words += f" --base-url {bench.url} --model {bench.model} --tokenizer {bench.tokenizer}"
    words += f" --num-prompts {requests} --max-concurrency {concurrency}"
    words += f" --num-warmups {concurrency} --temperature 0 --ignore-eos --disable-tqdm"
    words += f" --custom-output-len {bench.tokens} --percentile-metrics ttft,tpot,itl,e2el"
    words += f" --save-result --save-detailed --result-dir {bench.scratch}"
    words += " --result-filename theirs.json"
    assert bench.tool.stdin is not None
    assert bench.tool.stdout is not None
    bench.tool.stdin.write(json.dumps({"words": words.split()}) + "\n")
    bench.tool.stdin.flush()
    cpu = json.loads(bench.tool.stdout.readline())["cpu_s"]
    result = json.loads((bench.scratch / "theirs.json").read_text())
    assert result["completed"] == requests, result
    starts, ttfts = result["start_times"], result["ttfts"]
    ends = [ttft + sum(gaps) for ttft, gaps in zip(ttfts, result["itls"], strict=True)]
    tokens = result["total_output_tokens"]
    return {
        "tok/s": result["output_throughput"],
        SAME_SPAN: tokens / _span(starts, ends),
        **_waves(starts, ttfts, concurrency),
        "TPOT ms": result["mean_tpot_ms"],
        "e2e ms": result["mean_e2el_ms"],
        "CPU ms / 1k tokens": 1e6 * cpu / tokens,
    }


def _span(starts: Sequence[float], e2es: Sequence[float]) -> float:
    """From the first request to the last token."""
    return max(map(sum, zip(starts, e2es, strict=True))) - min(starts)


def _waves(starts: Sequence[float], ttfts: Sequence[float], concurrency: int) -> Run:
    """TTFT of all requests and of those behind the first wave, and how that wave was sent."""
    ordered = sorted(zip(starts, ttfts, strict=True))
    first, later = ordered[:concurrency], ordered[concurrency:]
    return {
        "TTFT ms": 1000 * fmean(ttft for _, ttft in ordered),
        "TTFT ms, later waves": 1000 * fmean(ttft for _, ttft in later or ordered),
        WAVE: 1000 * (first[-1][0] - first[0][0]),
    }


if __name__ == "__main__":
    main()
