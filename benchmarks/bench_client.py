"""`specctl bench run` and `vllm bench serve` on the same server, prompts and concurrency, in turns.

    .venv/bin/python benchmarks/bench_client.py --tokenizer DIR [--url URL] [--concurrency 1,32]

Without `--url` a simulated server is started. Answers have a fixed length, the window is `whole`
(as `vllm bench serve` counts), and CPU is of the client alone, from the first measured request to
the last answer. Rounds alternate, and who is first alternates too; printed are medians and, from
the same rounds, the median of the ratios. TTFT is told a second time without the first wave, which
meets an idle server all at once: the sooner a client has sent all of it, the longer the last of it
waits, by its own clock. How long that sending took is told too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median

ROOT = Path(__file__).parents[1]
VLLM = ROOT / ".vllm" / "bin" / "python"
SURE = ("--acceptance", "1,1,1")
"""Every draft is accepted: chance has no part in how fast the simulated server is."""
WAVE = "first wave sent within, ms"
FIGURES = (
    *("tok/s", "TTFT ms", "TTFT ms, later waves", "TPOT ms", "e2e ms"),
    *("CPU ms / 1k tokens", WAVE),
)
Run = dict[str, float]


def main() -> None:
    """Measures, then prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--url", help="a server; without prefix caching, or the second to ask gains"
    )
    parser.add_argument("--tokenizer", required=True, help="a folder; vllm bench serve wants one")
    parser.add_argument("--concurrency", default="1,32,256")
    parser.add_argument(
        "--requests", default=None, help="of each round; 4 x concurrency, 8 at least"
    )
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--pandas", default=None, help="a folder with pandas, if vLLM's Python lacks it"
    )
    given = parser.parse_args()
    print(f"rounds {given.rounds}, answers of {given.output_tokens} tokens")
    print("| concurrency | | specctl | vllm bench serve | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch, _server(given.url) as url:
        for concurrency in map(int, given.concurrency.split(",")):
            requests = int(given.requests or max(8, 4 * concurrency))
            prompts = _prompts(Path(scratch), requests)
            rounds = [
                _round(given, url, concurrency, requests, prompts, Path(scratch), turn)
                for turn in range(given.rounds)
            ]
            for name in FIGURES:
                ours, theirs = (median(run[i][name] for run in rounds) for i in (0, 1))
                ratios = [run[0][name] / run[1][name] for run in rounds if run[1][name]]
                told = ""
                if name != WAVE:
                    told = f"{median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
                print(
                    f"| {concurrency} | {name} | {ours:.2f} | {theirs:.2f} | {told} |", flush=True
                )
    print(f"load average {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores")


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    words = [
        sys.executable,
        "-m",
        "speccli",
        "sim",
        "--engines",
        "1",
        "-k",
        "3",
        "--rate",
        "0",
        *SURE,
    ]
    with subprocess.Popen([*words, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _prompts(scratch: Path, count: int) -> Path:
    from speccli.core.bench.datasets import load

    known = load("builtin").prompts
    rows = [{"id": f"{i:06}", "prompt": known[i % len(known)].text} for i in range(2 * count)]
    path = scratch / f"prompts-{count}.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    ordered = [{"id": p.id, "prompt": p.text} for p in load(str(path)).prompts]
    path.write_text("\n".join(json.dumps(row) for row in ordered))
    return path


def _round(
    given: argparse.Namespace,
    url: str,
    concurrency: int,
    requests: int,
    prompts: Path,
    scratch: Path,
    turn: int,
) -> tuple[Run, Run]:
    def ours() -> Run:
        return _specctl(url, concurrency, requests, given.output_tokens, prompts, scratch)

    def theirs() -> Run:
        return _vllm(given, url, concurrency, requests, prompts, scratch)

    if turn % 2:
        second, first = theirs(), ours()
        return first, second
    return ours(), theirs()


def _specctl(
    url: str, concurrency: int, requests: int, tokens: int, prompts: Path, scratch: Path
) -> Run:
    out = scratch / "ours.json"
    out.unlink(missing_ok=True)
    words = f"bench run --arm a={url} --batch {concurrency} --requests {requests} --window whole"
    words += f" --warmup {concurrency} --output-tokens {tokens} --dataset {prompts} --out {out}"
    words += " --repeats 1"
    subprocess.run(
        [sys.executable, "-m", "speccli", *words.split()], check=True, capture_output=True, cwd=ROOT
    )
    (row,) = json.loads(out.read_text())["rows"]
    assert row["state"] == "ok", row["reason"]
    samples = row["samples"]
    return {
        "tok/s": row["output_tokens_per_s"]["value"],
        **_waves(samples["start_s"], samples["ttft_s"], concurrency),
        "TPOT ms": 1000 * row["tpot_s"]["mean"]["value"],
        "e2e ms": 1000 * row["e2e_s"]["mean"]["value"],
        "CPU ms / 1k tokens": 1e6 * row["client"]["cpu_s"] / row["output_tokens"],
    }


def _waves(starts: list[float], ttfts: list[float], concurrency: int) -> Run:
    """TTFT of all requests and of those behind the first wave, and how that wave was sent."""
    ordered = sorted(zip(starts, ttfts, strict=True))
    first, later = ordered[:concurrency], ordered[concurrency:]
    return {
        "TTFT ms": 1000 * fmean(ttft for _, ttft in ordered),
        "TTFT ms, later waves": 1000 * fmean(ttft for _, ttft in later or ordered),
        WAVE: 1000 * (first[-1][0] - first[0][0]),
    }


def _vllm(
    given: argparse.Namespace,
    url: str,
    concurrency: int,
    requests: int,
    prompts: Path,
    scratch: Path,
) -> Run:
    import urllib.request

    with urllib.request.urlopen(f"{url}/v1/models") as answer:
        model = json.load(answer)["data"][0]["id"]
    words = "--backend openai-chat --endpoint /v1/chat/completions --dataset-name custom"
    words += f" --skip-chat-template --disable-shuffle --dataset-path {prompts} --base-url {url}"
    words += f" --model {model} --tokenizer {given.tokenizer} --num-prompts {requests}"
    words += f" --max-concurrency {concurrency} --num-warmups {concurrency} --temperature 0"
    words += f" --custom-output-len {given.output_tokens} --ignore-eos --disable-tqdm"
    words += " --save-result --save-detailed --percentile-metrics ttft,tpot,itl,e2el"
    words += f" --result-dir {scratch} --result-filename theirs.json"
    path = os.pathsep.join(filter(None, (given.pandas, os.environ.get("PYTHONPATH"))))
    subprocess.run(
        [VLLM, ROOT / "benchmarks" / "vllm_bench_cpu.py", scratch / "cpu.json", *words.split()],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
    )
    result = json.loads((scratch / "theirs.json").read_text())
    cpu = json.loads((scratch / "cpu.json").read_text())["cpu_s"]
    assert result["completed"] == requests, result
    return {
        "tok/s": result["output_throughput"],
        **_waves(result["start_times"], result["ttfts"], concurrency),
        "TPOT ms": result["mean_tpot_ms"],
        "e2e ms": result["mean_e2el_ms"],
        "CPU ms / 1k tokens": 1e6 * cpu / result["total_output_tokens"],
    }


if __name__ == "__main__":
    main()
