"""Phases that are no bench: unpacking, kernel check, drift, schedule, report."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from driver import places as places_
from driver import servers
from driver.groups import GROUPS, SHAREGPT, Group
from driver.measure import complete, dataset, result
from driver.places import CHECKOUT, LAB, Places, Stop, say, specctl


def unpack(places: Places, parts: Path) -> int:
    """Joins the parts that `pack` made, as many as are there, and lays out what is in them."""
    kit = places.work / "kit"
    kit.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PYTHON": places.engine}
    done = subprocess.run([LAB / "unpack", parts, kit], env=env, check=False)
    if done.returncode:
        raise Stop(f"unpack: ended with {done.returncode}: are all parts in {parts}?")
    missing = [name for name in KIT if not (kit / f"{name}.done").exists()]
    say(f"unpack: {'without ' + ', '.join(missing) if missing else 'all there'}")
    return 0


KIT = ("engine", "specctl", "smollm2-135m", "data", "heads", "trainer")
"""What `pack` makes; the last is for `train`."""


def check(places: Places, more: list[str]) -> int:
    """The kernel check on this machine: green, or the numbers stand on nothing.

    `more`: further words of `python -m kernels_check`, as `--only cost`; kept in a file of its own.
    """
    name = f"kernels-{more[-1].strip('-')}.json" if more else "kernels.json"
    file = places.work / "results" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [places.engine, "-m", "kernels_check", "--json", str(file), *more]
    env = places.engine_env()
    env["PYTHONPATH"] += f":{CHECKOUT}"
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, cwd=CHECKOUT,
            timeout=max(10, places.left_s - 5),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        say("kernels: no time left for it")
        return 1
    told = json.loads(file.read_text()) if file.exists() else {}
    say(f"kernels: {told.get('verdict', done.stderr[-300:])}, exit {done.returncode}")
    return done.returncode if done.returncode in (0, 1) else 2


def schedule(places: Places) -> int:
    """K by batch out of the sweep, in the form that the engine takes."""
    swept = [GROUPS[name] for name in ("8b-k", "8b-k2")]
    files = [result(places, group, bench) for group in swept for bench in group.benches]
    there = [str(file) for file in files if file.exists()]
    if not there:
        raise Stop("schedule: no sweep was measured yet: run do 8b-k")
    arguments = ["bench", "schedule", *there, "--max-num-seqs", str(swept[0].max_num_seqs)]
    code, out = specctl(places, [*arguments, "-o", "json"], limit_s=30)
    if code == 0:
        places_.write(places, "schedule.json", json.loads(out))
        say(f"schedule: {json.loads(out).get('speculative_config')}")
    return 0 if code == 0 else 1


def lossless(places: Places, group: Group) -> int:
    """Where greedy answers part, asked of the baseline for its near ties."""
    bench = next(b for b in group.benches if b.name == "lossless")
    file = result(places, group, bench)
    if not complete(file):
        say("lossless: its bench is not measured yet")
        return 1
    judged = ["bench", "lossless", str(file), "-o", "json"]
    asked = ["--ask", f"http://127.0.0.1:{servers.PORT}"]
    asked += ["--dataset", dataset(places, bench.datasets[0])]
    limit = min(60, places.left_s - 5)
    code, out = specctl(places, [*judged, *asked], limit_s=limit)
    if code == NOTHING_TO_ASK:
        code, out = specctl(places, judged, limit_s=limit)
    if out.strip().startswith("{"):
        places_.write(places, f"{group.name}-lossless-verdict.json", json.loads(out))
    return 0 if code in (0, 2, 3) else 1


NOTHING_TO_ASK = 64
"""Where no answer parts, there is nothing to ask the baseline for."""


DRIFT = (
    ("known", SHAREGPT, ()),
    ("other", "mtbench", ()),
    ("sampled", SHAREGPT, ("--temperature", "0.7")),
)
"""What the head was trained on, another domain, and the first at another temperature."""


def drift(places: Places, group: Group) -> int:
    """Traffic that the head knows, then traffic it knows less, in one recording of the server."""
    recording = places.work / "results" / f"{group.name}-drift.jsonl.gz"
    if recording.exists():
        return 0
    n = next(i for i, arm in enumerate(group.arms) if arm.method == "eagle3")
    url = f"http://127.0.0.1:{servers.PORT + n}"
    seconds = 6 if places.rehearse else 45
    command = [places.python, "-m", "speccli", "record", str(recording), "-e", url]
    command += ["--interval", "1s", "--for", f"{len(DRIFT) * seconds + 10}s", "--force"]
    recorder = subprocess.Popen(command, env=places.own_env(), cwd=CHECKOUT)
    told = []
    for phase, name, more in DRIFT:
        told.append({"phase": phase, "dataset": name, "began": time.time()})
        arguments = ["bench", "run", "--arm", f"eagle3={url}", "--dataset", dataset(places, name)]
        arguments += ["--data", str(places.data), "--repeats", "1", "--seconds", f"{seconds}s"]
        arguments += ["--batch", "2" if places.rehearse else "32", *more]
        arguments += ["--max-tokens", "24" if places.rehearse else "128"]
        file = places.work / "results" / f"{group.name}-drift-{phase}.json"
        specctl(places, [*arguments, "--out", str(file)], limit_s=seconds + 60)
    recorder.wait(timeout=60)
    places_.write(places, f"{group.name}-drift.json", {"phases": told, "seconds": seconds})
    return 0


def collect(places: Places) -> int:
    """Everything that was measured, as one archive in `out`; every phase ends with it."""
    if not (places.work / "results").exists():
        return 0
    places.out.mkdir(parents=True, exist_ok=True)
    archive = places.out / "lab.tar.gz"
    subprocess.run(["tar", "czf", archive, "-C", places.work, "results"], check=True)
    say(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB")
    return 0


REPORTED = {
    "8b": ("8b-arms", "8b-sets"),
    "32b": ("32b-arms", "32b-sets"),
    "70b-fp8": ("70b-fp8", "70b-eagle3-fp8", "70b-sets", "70b-eagle3-sets"),
    "70b-int4": ("70b-int4", "70b-eagle3-int4"),
    "70b-fp8-tp2": ("70b-tp2-fp8",),
    "70b-bf16-tp2": ("70b-bf16-tp2-bf16", "70b-bf16-tp2-eagle3-bf16"),
}
"""Benches of a model: arms that did not fit together are taken as one."""

BESIDE = {
    "8b-k": ("8b-k-sweep", "8b-k2-sweep"),
    "8b-graphs": ("8b-graphs-graphs",),
    "8b-schedule": ("8b-graphs-schedule",),
    "8b-temperature-0.7": ("8b-sampled",),
    "8b-schema": ("8b-structured",),
    "8b-lossless": ("8b-lossless",),
    "mixture": ("mixture-routing",),
    "70b-bf16": ("70b-bf16-arms",),
}
"""Further questions, under a first page of their own."""


def report(places: Places) -> int:
    """All that was collected: the models under one first page, what else was asked in `more/`."""
    models, more = (_each(places, benches) for benches in (REPORTED, BESIDE))
    if not models and not more:
        raise Stop(f"report: nothing was measured yet in {places.work / 'results'}")
    out, worst = places.work / "report", 0
    if models:
        worst = _report(places, models, out, _estimates(places, models))
    if more:
        worst = max(worst, _report(places, more, out / "more", []))
    return worst


def _each(places: Places, benches: dict[str, tuple[str, ...]]) -> list[str]:
    """NAME=FILE of what was measured."""
    results = places.work / "results"
    found = ((name, results / f"{file}.json") for name, files in benches.items() for file in files)
    return [f"{name}={file}" for name, file in found if file.exists()]


def _estimates(places: Places, models: list[str]) -> list[str]:
    """What `specctl plan` says beside it, as an option of the report."""
    file = places.work / "results" / "estimate.json"
    command = [places.python, str(LAB / "estimate.py"), "--json", str(file), *models]
    subprocess.run(command, env=places.own_env(), check=False, stdout=subprocess.DEVNULL)
    return ["--estimates", str(file)] if file.exists() else []


def _report(places: Places, each: list[str], out: Path, more: list[str]) -> int:
    price = os.environ.get("LAB_GPU_HOUR_USD")
    words = ["report", *(f"--each={one}" for one in each), *more, "--baseline", "baseline"]
    words += ["--gpu-hour-usd", price] if price else []
    code, _ = specctl(places, [*words, "--out", str(out)], limit_s=180)
    return code
