"""The demonstration on a real engine: SmolLM2-135M with its trained EAGLE-3 head, on this CPU.

The drop is real too: half-way the traffic turns from greedy to very hot sampling, and a draft that
proposes its likeliest token is then right far less often.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from speccli.core.engines.local import LocalEngine, find_vllm_python, free_port
from speccli.core.errors import SpecctlError

_CHECKOUT = Path(__file__).parents[2]
_HEAD = _CHECKOUT / "tests" / "data" / "smollm2-135m-eagle3"
_MAKE_TARGET = _CHECKOUT / "scripts" / "smollm2_target.py"
_CLIENTS = 4
_HOT = 1.8
_MAKE_DEADLINE_S = 600.0
_START_DEADLINE_S = 240.0
_K = 3
_PROMPTS = (
    "What is the capital of France, and what is it known for?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Explain in a few sentences why the sky is blue.",
    "How do I reverse a linked list?",
    "Write a Python function that checks whether a number is prime.",
    "What are the advantages of renewable energy?",
)
FAULT_WORDS = f"the traffic turns from greedy to temperature {_HOT}: the draft is right less often"
FLOOR = 0.2
"""Between this pair's acceptance on such prompts, greedy (about 0.35) and hot (under 0.1)."""


@dataclass(slots=True)
class RealEngine:
    """A running engine under traffic."""

    urls: list[str]
    description: str
    floor: float = FLOOR
    _temperature: float = field(default=0.0)

    def fault(self) -> None:
        """From now on the traffic is sampled hot."""
        self._temperature = _HOT

    @property
    def temperature(self) -> float:
        """What the clients ask for now."""
        return self._temperature


def model_folder(python: Path, environ: Mapping[str, str]) -> Path:
    """Where models of this vLLM lie: beside it in a checkout, else in the user's cache."""
    installed = python.parents[1]
    if installed.name == ".vllm":
        return installed / "models"
    named = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a path that is not absolute is to be ignored.
    home = environ.get("HOME") or str(Path.home())
    cache = Path(named) if named.startswith("/") else Path(home) / ".cache"
    return cache / "specctl" / "models"


@contextlib.contextmanager
def real_engine(say: Callable[[str], None]) -> Iterator[RealEngine]:
    """Start the model and its traffic; both end with the block.

    Raises:
        SpecctlError: vLLM or the model is not on this machine, or it did not start.
    """
    python = find_vllm_python()
    if python is None or not _HEAD.is_dir():
        raise SpecctlError(
            "the demonstration on vLLM needs a checkout and a vLLM for the CPU",
            hint="in a checkout of specctl run `make vllm` (about 3 minutes)",
        )
    model = model_folder(python, os.environ) / "smollm2-135m"
    say(f"preparing the model in {model}")
    _make(python, model)
    log = _fresh_log()
    engine = LocalEngine(
        python,
        str(model),
        port=free_port(),
        speculative={"method": "eagle3", "model": str(_HEAD), "num_speculative_tokens": _K},
        extra_args=(
            *("--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "16"),
            *("--served-model-name", "smollm2-135m"),
        ),
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
        log_path=log,
    )
    say("starting vLLM with its EAGLE-3 head (under a minute)")
    with engine:
        engine.wait_ready(_START_DEADLINE_S)
        real = RealEngine(
            [engine.url],
            f"Real vLLM on this CPU: SmolLM2-135M-Instruct, EAGLE-3, K={_K}, {_CLIENTS} clients.\n"
            f"Half-way the traffic turns from greedy to temperature {_HOT}, and the draft is\n"
            f"right far less often. Floor {FLOOR}; prices are illustrative.\n",
        )
        with _traffic(real):
            yield real
    log.unlink(missing_ok=True)  # of a failed start it is what the hint names


def _make(python: Path, model: Path) -> None:
    """Make the model's folder unless it is there."""
    try:
        made = subprocess.run(
            [python, _MAKE_TARGET, model],
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAKE_DEADLINE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise SpecctlError(
            f"the model was not made within {error.timeout:.0f} s", hint="is the network slow?"
        ) from error
    except OSError as error:
        raise SpecctlError(f"{python} cannot be run: {error.strerror}") from error
    if made.returncode != 0:
        last = made.stderr.strip().splitlines()[-1:] or ["no word"]
        raise SpecctlError(f"the model could not be made: {last[0]}")


def _fresh_log() -> Path:
    """A file that is nobody else's, for what vLLM prints."""
    try:
        with tempfile.NamedTemporaryFile(
            prefix="specctl-demo-vllm-", suffix=".log", delete=False
        ) as file:
            return Path(file.name)
    except OSError as error:
        raise SpecctlError(
            f"no file for vLLM's log: {error.strerror}", hint="set TMPDIR to a folder that can be"
        ) from error


@contextlib.contextmanager
def _traffic(real: RealEngine) -> Iterator[None]:
    """Clients in threads, each asking again as soon as it is answered."""
    enough = threading.Event()
    clients = [
        threading.Thread(target=_ask, args=(real, number, enough), daemon=True)
        for number in range(_CLIENTS)
    ]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        enough.set()


def _ask(real: RealEngine, number: int, enough: threading.Event) -> None:
    turn = number
    while not enough.is_set():
        body = {
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": _PROMPTS[turn % len(_PROMPTS)]}],
            "max_tokens": 128,
            "temperature": real.temperature,
        }
        request = urllib.request.Request(
            f"{real.urls[0]}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except OSError:
            enough.wait(0.5)
        turn += 1
