"""`specctl top --prometheus` on thousands of simulated engines in a real Prometheus."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from terminal import Terminal

SPECCTL = str(Path(sys.executable).parent / "specctl")
RULES = Path(__file__).parents[1] / "manifests" / "monitoring" / "recording-rules.yaml"
SIM_PORT, PROMETHEUS_PORT = 19200, 19290
SHARDS = 4


def config(folder: Path, *, rules: bool) -> Path:
    """Prometheus's configuration: the fleet's page in shards, its own labels kept."""
    jobs = "".join(
        f"""
  - job_name: fleet-{shard}
    honor_labels: true
    metrics_path: /fleet/metrics
    params: {{shard: ["{shard}"], shards: ["{SHARDS}"]}}
    static_configs: [{{targets: ["127.0.0.1:{SIM_PORT}"]}}]"""
        for shard in range(SHARDS)
    )
    plain = folder / "rules.yaml"
    text = RULES.read_text()
    plain.write_text(text)
    files = f"rule_files: [{plain}]\n" if rules else ""
    path = folder / "prometheus.yaml"
    timing = "{scrape_interval: 15s, scrape_timeout: 14s, evaluation_interval: 30s}"
    path.write_text(f"global: {timing}\n{files}scrape_configs:{jobs}\n")
    return path


def ask(query: str) -> float | None:
    """One number from Prometheus."""
    url = f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/query?"
    try:
        with urllib.request.urlopen(url + urllib.parse.urlencode({"query": query})) as answer:
            result = json.load(answer)["data"]["result"]
    except OSError:
        return None
    return float(result[0]["value"][1]) if result else None


def main() -> None:
    """Print one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=2000)
    parser.add_argument("--rules", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sim = subprocess.Popen(
            [SPECCTL, "sim", "--engines", str(given.engines), "--one-port", "-k", "4"]
            + ["--port", str(SIM_PORT)],
            stdout=subprocess.DEVNULL,
        )
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={config(folder, rules=given.rules)}"]
            + [f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=warn"]
            + [f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"],
        )
        try:
            measure(given.engines)
        finally:
            for process in (prometheus, sim):
                process.terminate()
                process.wait(30)


def measure(engines: int) -> None:
    """Wait until the window is full, then open the screen."""
    began = time.monotonic()
    full = f"count(count_over_time(vllm:generation_tokens_total[75s]) >= 4) >= {engines}"
    while ask(full) is None:
        if time.monotonic() - began > 300:
            raise SystemExit("Prometheus never had the whole fleet")
        time.sleep(2)
    terminal = Terminal(
        [SPECCTL, "top", "--prometheus", f"http://127.0.0.1:{PROMETHEUS_PORT}"], 120, 40
    )
    shown = re.compile(r"acceptance\s+0\.\d\d")
    try:
        start = terminal.until(lambda text: bool(shown.search(text)), 60.0)
        terminal.pump(30.0)
        before, at = terminal.usage(), time.monotonic()
        terminal.pump(30.0)
        after = terminal.usage()
        print(terminal.text())
    finally:
        terminal.close()
    truth = ask(
        "sum(increase(vllm:spec_decode_num_accepted_tokens_total[60s]))"
        " / sum(increase(vllm:spec_decode_num_draft_tokens_total[60s]))"
    )
    cpu = 100 * (after.cpu_s - before.cpu_s) / (time.monotonic() - at)
    print(f"engines {engines}, first right screen {start or float('nan'):.2f} s, ", end="")
    print(f"RSS {after.rss_mb:.0f} MB, CPU {cpu:.1f} %, acceptance by PromQL {truth:.4f}")


if __name__ == "__main__":
    main()
