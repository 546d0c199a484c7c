"""A real vLLM, run as its rendered container says: user, mounts, variables, command, drain."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from speccli.core.engines.local import free_port
from speccli.core.manifests import objects
from speccli.core.recipes.load import load
from tests.e2e.harness import Exposition
from tests.support.manifests import HUB
from tests.support.real import absent

pytestmark = pytest.mark.real_vllm
SCRIPT = Path(__file__).parents[1] / "support" / "container.sh"
REVISION = "0123456789abcdef0123456789abcdef01234567"
START_S = 900


@dataclass(frozen=True)
class Running:
    """The engine's process, which is the container's first."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    grace_s: int

    def get(self, path: str, body: object = None) -> bytes:
        """An answer's body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return bytes(answer.read())


def hub_cache(folder: Path, pair: Path) -> Path:
    """The tiny pair as huggingface_hub keeps models, as a claim would hold it."""
    for name in ("target", "eagle3"):
        place = folder / f"models--acme--tiny-{name}"
        shutil.copytree(pair / name, place / "snapshots" / REVISION)
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text(REVISION)
    # safetensors writes files for their owner alone, and the engine is another user.
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def deployment(pair: Path) -> dict[str, Any]:
    """A Deployment of the tiny pair, by its names on the hub."""
    changes = (
        *("target.model=acme/tiny-target", "draft.model=acme/tiny-eagle3"),
        *("storage.source=pvc", "storage.claim=weights", "engine.served_model_name=tiny"),
        *("hardware.count=1", "serving.tensor_parallel=1", "serving.enforce_eager=true"),
        *("serving.max_model_len=1024", "serving.max_num_seqs=16", "target.quantization=null"),
        *("serving.max_num_batched_tokens=1024", "serving.shutdown_timeout_s=30"),
        *(f"target.config={pair / 'target'}", f"draft.config={pair / 'eagle3'}"),
        "engine.env={VLLM_CPU_KVCACHE_SPACE: '1'}",
    )
    made = objects(load(HUB, changes))
    return next(each for each in made if each["kind"] == "Deployment")


@pytest.fixture(scope="module")
def running(
    vllm_python: Path, tiny_pair_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """The container, ready."""
    if os.geteuid() != 0:
        absent("mounts and users are changed: run as root")
    for tool in ("unshare", "setpriv", "chroot"):
        if shutil.which(tool) is None:
            absent(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("container")
    (folder / "root").mkdir()
    (folder / "models").mkdir()
    models = hub_cache(folder / "models", tiny_pair_dir)
    spec = deployment(tiny_pair_dir)["spec"]["template"]["spec"]
    container = spec["containers"][0]
    ask = "import sys; print(sys.prefix, sys.base_prefix)"
    prefixes = subprocess.check_output([vllm_python, "-c", ask], text=True).split()
    variables = [f"{e['name']}={e['value']}" for e in container["env"] if "value" in e]
    port, log = free_port(), folder / "log"
    words = [
        *("unshare", "--mount", "sh", SCRIPT, folder / "root", models),
        *(prefix for prefix in dict.fromkeys(prefixes) if not prefix.startswith("/usr")),
        *("--", "env", "-i", f"PATH={prefixes[0]}/bin:/usr/bin:/bin", *variables),
        *(*container["command"], *container["args"], "--port", str(port)),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen([*map(str, words)], stdout=out, stderr=subprocess.STDOUT)
    found = Running(process, f"http://127.0.0.1:{port}", log, spec["terminationGracePeriodSeconds"])
    try:
        _wait(found)
        yield found
    finally:
        process.kill()
        process.wait()


def _wait(running: Running) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if running.process.poll() is not None:
            break
        try:
            running.get("/health")
        except OSError:
            time.sleep(1)
        else:
            return
    pytest.fail(running.log.read_text(errors="replace")[-3000:])


def test_it_runs_as_the_restricted_standard_has_it(running: Running) -> None:
    proc = Path("/proc") / str(running.process.pid)
    status = dict(
        line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line
    )
    assert status["Uid"].split() == ["1000"] * 4
    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16)) == (0, 0)
    assert status["NoNewPrivs"] == "1"
    mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    root = [fields[5] for fields in mounts if fields[4] == "/"]
    assert root
    assert all("ro" in options.split(",") for options in root)


def test_the_draft_of_a_read_only_cache_is_found_by_its_name(running: Running) -> None:
    prompt = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 40, "temperature": 0}
    running.get("/v1/completions", prompt)
    page = Exposition(running.get("/metrics").decode())
    assert page.total("vllm:spec_decode_num_drafts_total") > 0
    assert page.total("vllm:spec_decode_num_accepted_tokens_total") > 0


def test_there_are_no_series_of_creation_times(running: Running) -> None:
    assert b"_created" not in running.get("/metrics")


def test_it_ends_within_its_grace(running: Running) -> None:
    started = time.monotonic()
    running.process.terminate()
    assert running.process.wait(timeout=running.grace_s) == 0
    assert time.monotonic() - started < running.grace_s
    with pytest.raises(urllib.error.URLError):
        running.get("/health")
