"""Phases that are no bench: unpacking, kernel check, drift, schedule, report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from driver import places as places_
from driver import ready, up
from driver.groups import GROUPS, Group, Traffic
from driver.measure import complete, dataset, result
from driver.places import CHECKOUT, LAB, Places, Stop, Usage, say, specctl


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
    if places.rehearse:
        say("kernels: not checked, a rehearsal has no GPU")
        return 0
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
    told = places_.read(file) if done.returncode in (0, 1, 2) else {}
    said = " ".join(done.stderr.split())[-300:]
    say(f"kernels: {told.get('verdict') or f'not checked: {said}'}")
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
    """Where greedy answers part, asked of the baseline for its near ties.

    Returns:
        0 none is wrong, 1 not judged yet, 2 one is wrong, 3 it cannot be told.
    """
    bench = next((b for b in group.benches if b.name == "lossless"), None)
    if bench is None:
        raise Usage(f"lossless: {group.name} has no such bench: {_those_with('lossless')} have one")
    file = result(places, group, bench)
    if not complete(file):
        say(f"lossless: its bench is not measured yet: bench {group.name} --only lossless")
        return 1
    kept = places.work / "results" / f"{group.name}-lossless-verdict.json"
    if kept.exists() and kept.stat().st_mtime > file.stat().st_mtime:
        return _verdict(places_.read(kept))
    judged = ["bench", "lossless", str(file), "-o", "json"]
    _, out = specctl(places, judged, limit_s=30)
    told = _object(out)
    if any(arm.get("partings") for arm in told.get("arms", ())):
        base = next(arm for arm in GROUPS[group.name].arms if arm.method == "none")
        if not up.is_up(places, group, base):
            say(f"lossless: answers part, and the baseline is down: serve {group.name}, and again")
            return 1
        judged += ["--ask", f"http://127.0.0.1:{up.port(group, base)}"]
        # Kept in the bench, so that a report of it tells rounding from a fault, too.
        judged += ["--dataset", dataset(places, bench.datasets[0]), "--out", str(file)]
        _, out = specctl(places, judged, limit_s=min(600 if group.cpu else 60, places.left_s - 5))
        told = _object(out)
    if not told:
        say("lossless: no verdict yet")
        return 1
    places_.write(places, kept.name, told)
    return _verdict(told)


def _object(out: str) -> dict[str, Any]:
    return dict(json.loads(out)) if out.strip().startswith("{") else {}


def _those_with(bench: str) -> str:
    return ", ".join(g.name for g in GROUPS.values() if any(b.name == bench for b in g.benches))


def _verdict(told: dict[str, Any]) -> int:
    """Says it, an arm a line."""
    if told.get("why_none"):
        say(f"lossless: not to be told: {told['why_none']}")
        return 3
    wrong = untold = 0
    for arm in told.get("arms", ()):
        kinds, beside = arm.get("kinds") or {}, arm.get("beside_baseline") or {}
        unknown = kinds.get("unknown", 0) + arm.get("unlocated", 0)
        wrong, untold = wrong + kinds.get("wrong", 0), untold + unknown
        say(
            f"lossless: {arm.get('arm')}: {beside.get('same')} of {beside.get('pairs')} answers "
            f"are the baseline's; of the others {kinds.get('numeric', 0)} part at a near tie, "
            f"{kinds.get('wrong', 0)} are wrong, {unknown} not to be told"
        )
    return 2 if wrong else 3 if untold else 0


BEGUN_S = 30.0
PART = 150
"""Prompts of a part: more than a CPU asks in a stretch."""


def drift(places: Places, group: Group) -> int:
    """Traffic that the head knows, then traffic it knows less, in one recording of the server.

    Returns:
        0 recorded, 1 no time for it; what was not recorded to its end leaves nothing as done.
    """
    results = places.work / "results"
    recording, kept = results / f"{group.name}-drift.jsonl.gz", results / f"{group.name}-drift.json"
    if recording.exists() and kept.exists():
        say(f"drift: recorded before, in {recording}")
        return 0
    arm = next((arm for arm in group.arms if arm.method == "eagle3"), None)
    if arm is None:
        raise Usage(f"drift: no arm of {group.name} that was asked for has an EAGLE-3 head")
    if not up.is_up(places, group, arm):
        raise Stop(f"drift: {group.name}/{arm.name} is not up: serve {group.name} first")
    needed = sum(6 if places.rehearse else each.seconds for each in group.traffic)
    if places.left_s < needed:
        say(f"drift: takes {needed} s at least, {places.left_s:.0f} s are left")
        return 1
    lacking = ready.prompts(places, [each.dataset for each in group.traffic])
    if lacking:
        raise Stop(lacking)
    results.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{up.port(group, arm)}"
    command = [places.python, "-m", "speccli", "record", str(recording), "-e", url]
    command += ["--interval", "1s", "--force"]
    recorder = subprocess.Popen(command, env=places.own_env(), cwd=CHECKOUT, text=True)
    told: list[dict[str, Any]] = []
    try:
        _begun(recorder, recording)
        for each in group.traffic:
            told.append(_traffic(places, f"{group.name}-drift-{each.phase}", url, each))
        if recorder.poll() is not None:
            raise Stop(f"drift: the recording ended by itself, with {recorder.returncode}")
    except BaseException:
        places_.end(recorder, 10, signal.SIGTERM)
        recording.unlink(missing_ok=True)
        raise
    places_.end(recorder, 10, signal.SIGTERM)
    places_.write(places, kept.name, {"phases": told})
    return 0


def _begun(recorder: subprocess.Popen[str], recording: Path) -> None:
    """Waits until it records: traffic before that would be in no recording."""
    end = time.monotonic() + BEGUN_S
    while recorder.poll() is None and time.monotonic() < end:
        if recording.exists() and recording.stat().st_size:
            return
        time.sleep(0.1)


def _traffic(places: Places, name: str, url: str, asked: Traffic) -> dict[str, Any]:
    """One phase of the recording.

    Raises:
        Stop: it was not measured.
    """
    file = places.work / "results" / f"{name}.json"
    file.unlink(missing_ok=True)
    seconds = 6 if places.rehearse else asked.seconds
    data = dataset(places, asked.dataset) if asked.part is None else _part(places, asked)
    arguments = ["bench", "run", "--arm", f"eagle3={url}", "--dataset", data]
    arguments += ["--data", str(places.data), "--repeats", "1", "--seconds", f"{seconds}s"]
    arguments += ["--batch", "2" if places.rehearse else str(asked.batch), *asked.more]
    arguments += ["--max-tokens", "24" if places.rehearse else str(asked.max_tokens)]
    began = time.time()
    code, _ = specctl(places, [*arguments, "--out", str(file)], limit_s=seconds + 60)
    if code not in (0, 1):
        raise Stop(f"{name}: its bench ended with {code}; nothing of the recording is kept")
    told = {"phase": asked.phase, "dataset": asked.dataset, "more": list(asked.more)}
    return {**told, "began": began, "ended": time.time(), "seconds": seconds}


def _part(places: Places, asked: Traffic) -> str:
    """A file of some of a set's prompts."""
    source = Path(dataset(places, asked.dataset))
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    first = (asked.part or 0) * PART
    file = places.work / "parts" / f"{source.stem}-{asked.part}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines[first : first + PART]), encoding="utf-8")
    return str(file)


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
    "8b-graphs-lossless": ("8b-graphs-lossless",),
    "mixture": ("mixture-routing",),
}
"""Further questions, under a first page of their own."""


def report(places: Places) -> int:
    """All that was collected: the models under one first page, what else was asked in `more/`.

    Returns:
        0 all of it, 1 something was left out, else what `specctl report` ended with.
    """
    (models, lacks), (more, lacks_more) = (_each(places, all_) for all_ in (REPORTED, BESIDE))
    for why in (*lacks, *lacks_more):
        say(f"report: without {why}")
    if not models and not more:
        raise Stop(f"report: nothing to report in {places.work / 'results'}")
    out, worst = places.work / "report", 1 if lacks or lacks_more else 0
    if models:
        worst = max(worst, _report(places, models, out, _estimates(places, models)))
    if more:
        worst = max(worst, _report(places, more, out / "more", []))
    return worst


def _each(places: Places, all_: dict[str, tuple[str, ...]]) -> tuple[list[str], list[str]]:
    """NAME=FILE of what was measured, and what of it cannot be reported."""
    found, lacks = [], []
    for name, benches in all_.items():
        files, arms = [], set()
        for file in (places.work / "results" / f"{bench}.json" for bench in benches):
            try:
                told = places_.read(file)
                arms |= {arm["name"] for arm in told.get("arms", ())}
            except Stop as stop:
                lacks.append(str(stop))
            except (KeyError, TypeError):
                lacks.append(f"{file}: it is no bench")
            else:
                files += [f"{name}={file}"] if told else []
        if "baseline" in arms:
            found += files
        elif files:
            lacks.append(f"{name}: no baseline was measured yet, only {', '.join(sorted(arms))}")
    return found, lacks


def _estimates(places: Places, models: list[str]) -> list[str]:
    """What `specctl plan` says beside it, as an option of the report."""
    file = places.work / "results" / "estimate.json"
    file.unlink(missing_ok=True)
    command = [places.python, str(LAB / "estimate.py"), "--json", str(file), *models]
    subprocess.run(command, env=places.own_env(), check=False, stdout=subprocess.DEVNULL)
    return ["--estimates", str(file)] if file.exists() else []


def _report(places: Places, each: list[str], out: Path, more: list[str]) -> int:
    price = os.environ.get("LAB_GPU_HOUR_USD")
    words = ["report", *(f"--each={one}" for one in each), *more, "--baseline", "baseline"]
    words += ["--gpu-hour-usd", price] if price else []
    code, _ = specctl(places, [*words, "--out", str(out)], limit_s=180)
    if code == 0:
        say(f"report: {out / 'README.md'}")
    return code
