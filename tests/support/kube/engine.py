"""The process of a pod: specctl's simulated engine, labelled SIMULATED, started as vLLM would be.

`python -m tests.support.kube.engine JSON`, with address, port, arguments (the words of the pod's
command after `vllm`) and behaviour. It takes the model, the speculation and the limits from its
arguments, tells the phases of its start in the words of vLLM 0.32's log, refuses connections until
it serves, and ends as `--shutdown-timeout` has it: 0 drops what is in flight at SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from aiohttp import web

from speccli.core.sim.base import Change
from speccli.core.sim.config import (
    PREFIX,
    Acceptance,
    Method,
    SimConfig,
    StepCost,
    Traffic,
    default_acceptance,
)
from speccli.core.sim.engine import SimEngine
from speccli.core.sim.fleet import Fleet, Replica
from speccli.core.sim.server import SimServer
from tests.support.kube import behaviour as behaviours
from tests.support.kube.behaviour import Behaviour

_METHODS: dict[str, Method] = {
    "eagle3": "eagle3",
    "eagle": "eagle3",
    "ngram": "ngram",
    "draft_model": "draft_model",
    "mtp": "mtp",
}
_OUTPUT_TOKENS = 128.0
_TICK_S = 0.05
_FOLLOW_S = 0.25
_GRAMMARS = frozenset({"response_format", "structured_outputs", "guided_json"})


@dataclass(frozen=True)
class Words:
    """The arguments of `vllm serve`."""

    words: Sequence[str]

    def value(self, flag: str) -> str | None:
        """What an option is set to, `--flag value` or `--flag=value`; the last one counts."""
        found = None
        for word, following in zip(self.words, [*self.words[1:], ""], strict=True):
            if word == flag:
                found = following
            elif word.startswith(f"{flag}="):
                found = word.partition("=")[2]
        return found

    def number(self, flag: str, usual: int) -> int:
        """A whole number."""
        return int(self.value(flag) or usual)

    @property
    def model(self) -> str:
        """The name it is served under."""
        named = self.value("--served-model-name") or self.value("--model")
        bare = [word for word in self.words if not word.startswith("-") and word != "serve"]
        return named or (bare[0] if bare else "unnamed")


def speculation(words: Words) -> tuple[Method, int]:
    """Method and K that the arguments ask for; `none` and 0 without any."""
    text = words.value("--speculative-config") or words.value("-sc")
    if text is None:
        return "none", 0
    asked: dict[str, Any] = json.loads(text)
    k = int(asked.get("num_speculative_tokens") or 3)
    if asked.get("parallel_drafting"):
        return "p-eagle", k
    return _METHODS.get(str(asked.get("method", "")), "draft_model"), k


def config_of(words: Words, behaviour: Behaviour) -> SimConfig:
    """The engine that these arguments ask for."""
    method, k = speculation(words)
    if behaviour.silent_speculation:
        method, k = "none", 0
    model_len = words.number("--max-model-len", 8192)
    cost = StepCost().scaled(behaviour.step_factor)
    if behaviour.token_s is not None:
        cost = replace(cost, token_s=behaviour.token_s)
    return SimConfig(
        method=method,
        k=k,
        acceptance=accepts(method, k, behaviour),
        model=PREFIX + words.model,
        draft=f"{PREFIX}draft" if k else None,
        cost=cost,
        traffic=Traffic(rate_per_s=behaviour.rate_per_s, output_mean=_OUTPUT_TOKENS),
        max_num_seqs=behaviour.max_num_seqs or words.number("--max-num-seqs", 128),
        max_model_len=model_len,
        kv_tokens=max(400_000, 2 * model_len),
    )


def accepts(method: Method, k: int, behaviour: Behaviour) -> Acceptance:
    """How often drafts are accepted."""
    return default_acceptance(method, k, behaviour.acceptance) if k else Acceptance(())


def _log(where: str, text: str) -> None:
    stamp = time.strftime("%m-%d %H:%M:%S")
    sys.stdout.write(f"(EngineCore pid=1) INFO {stamp} [{where}] {text}\n")
    sys.stdout.flush()


def phases(words: Words, behaviour: Behaviour, speculates: bool) -> Iterator[tuple[str, float]]:
    """Tell each phase of the start in the log; its name and its share of the loading time."""
    s = behaviour.load_s
    _log("core.py:1", "SIMULATED: no model is loaded and no GPU is used")
    _log("gpu_model_runner.py:5040", f"Starting to load model {words.model}...")
    yield "weights", 0.5
    _log("default_loader.py:502", f"Loading weights took {s * 0.5:.2f} seconds")
    if speculates:
        _log("gpu_model_runner.py:5071", "Loading drafter model...")
        yield "drafter", 0.1
    _log("gpu_model_runner.py:5150", f"Model loading took 0.0 GiB memory and {s * 0.6:.6f} seconds")
    yield "compile", 0.2
    _log("monitor.py:20", f"torch.compile took {s * 0.2:.2f} s in total")
    _log("gpu_worker.py:760", "Available KV cache memory: 0.0 GiB")
    yield "graphs", 0.2
    _log(
        "gpu_model_runner.py:6582", f"Graph capturing finished in {s * 0.2:.0f} secs, took 0.00 GiB"
    )
    _log("core.py:403", f"init engine (profile, create kv cache, warmup model) took {s:.2f} s")


async def load(words: Words, behaviour: Behaviour, speculates: bool) -> None:
    """Take the time that loading takes, or hang, or end the process."""
    for phase, share in phases(words, behaviour, speculates):
        if phase == behaviour.stop_loading_at:
            await asyncio.Event().wait()
        if phase == behaviour.crash_at:
            crash(behaviour)
        await asyncio.sleep(behaviour.load_s * share)
    if behaviour.oom:
        signal.raise_signal(signal.SIGKILL)
    if behaviour.crash_log and behaviour.crash_after_s is None:
        crash(behaviour)


def crash(behaviour: Behaviour) -> NoReturn:
    """End as a server that failed does: at once, and every connection breaks."""
    sys.stdout.write(behaviour.crash_log.rstrip("\n") + "\n" if behaviour.crash_log else "")
    sys.stdout.flush()
    os._exit(behaviour.exit_code)


class PodServer(SimServer):
    """The simulator's server, with a health that may be bad and a drain."""

    def __init__(self, fleet: Fleet, host: str, port: int, does: Behaviour) -> None:
        super().__init__(fleet, host, ports=[port])
        self.does = does
        self.draining = False
        self.crashed = asyncio.Event()

    async def _health(self, http: web.Request) -> web.Response:
        if self.does.unready:
            return web.Response(status=503)
        return await super()._health(http)

    async def _metrics(self, http: web.Request) -> web.StreamResponse:
        if self.does.blind:
            return web.Response(status=503)
        return await super()._metrics(http)

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        await self._meet(http)
        return self._closed() or await super()._completions(http)

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        await self._meet(http)
        return self._closed() or await super()._chat(http)

    async def _meet(self, http: web.Request) -> None:
        """End at a grammar, where that is what it does."""
        if not self.does.grammar_log or not self.engine.config.k:
            return
        if _GRAMMARS & set(await http.json()):
            self.crashed.set()
            await asyncio.Event().wait()

    @property
    def engine(self) -> SimEngine:
        """Its only one."""
        engine = self.fleet.replicas[0].engines[0]
        assert isinstance(engine, SimEngine)
        return engine

    async def follow(self, rules: Sequence[Any]) -> None:
        """Do from now on what the rule says by now."""
        folder, namespace, labels, text = rules
        while True:
            await asyncio.sleep(_FOLLOW_S)
            does = behaviours.read(Path(folder), namespace, labels, text)
            if does.acceptance != self.does.acceptance:
                config = self.engine.config
                accepted = accepts(config.method, config.k, does)
                self.engine.advance()
                self.engine.config = replace(config, acceptance=accepted)
                self.engine.apply(Change("acceptance"))
            self.does = replace(
                self.does,
                acceptance=does.acceptance,
                grammar_log=does.grammar_log,
                blind=does.blind,
            )

    def _closed(self) -> web.Response | None:
        """A server that drains takes nothing new."""
        return web.Response(status=503, text="shutting down") if self.draining else None

    async def drain(self, seconds: float) -> None:
        """Take nothing new and finish what is there, for so long at most."""
        self.draining = True
        ticks = round(seconds / _TICK_S)
        for _ in range(ticks):
            if not self.engine.listeners:
                return
            await asyncio.sleep(_TICK_S)


async def main(
    host: str, port: int, words: Words, behaviour: Behaviour, rules: Sequence[Any] | None = None
) -> None:
    """Load, serve, and stop when told to; `rules`: where its behaviour is, to be read again."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if behaviour.ignores_term else stop.set)
    config = config_of(words, behaviour)
    loading = asyncio.create_task(load(words, behaviour, speculates=config.k > 0))
    told = asyncio.create_task(stop.wait())
    await asyncio.wait((loading, told), return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        return
    loading.result()
    engine = SimEngine(config, time.time)
    fleet = Fleet([Replica("engine", [engine])], time.time)
    async with PodServer(fleet, host, port, behaviour) as server:
        _log("entry.py:140", f"Starting vLLM server on http://{host}:{port}")
        _log("server.py:84", "Application startup complete.")
        following = asyncio.create_task(server.follow(rules)) if rules else None
        crashed = asyncio.create_task(server.crashed.wait())
        await asyncio.wait(
            (told, crashed),
            timeout=behaviour.crash_after_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if crashed.done():
            crash(replace(behaviour, crash_log=server.does.grammar_log))
        if not told.done():
            crash(behaviour)
        if following is not None:
            following.cancel()
        _log("launcher.py:110", "Shutting down")
        await server.drain(words.number("--shutdown-timeout", 0))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(
        main(
            given["host"],
            given["port"],
            Words(given["words"]),
            Behaviour(**given["behaviour"]),
            given.get("rules"),
        )
    )
