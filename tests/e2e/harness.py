"""Real vLLM servers for tests: which there are, how to load them, what their counters say.

Nothing here is specctl's but the starting and stopping (`LocalEngine`). The reader of counters
above all is independent on purpose: it is what specctl's own is compared with.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from speccli.core.engines.local import HOST, EngineStartError, LocalEngine, free_port

K = 3
ROOT = Path(__file__).parents[2]
SMOLLM2_HEAD = ROOT / "tests" / "data" / "smollm2-135m-eagle3"

START_DEADLINE_S = 600
"""Some twenty seconds are usual; a machine that does other things may take many times as long."""
SERVE_ARGS = ("--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "16")
SERVE_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

Prompt = str | list[int]
"""What a user says (goes through the chat template), or token ids (go in as they are)."""


@dataclass(frozen=True)
class Recipe:
    """What one server serves."""

    name: str
    """The served model's name, and so the `model_name` label."""
    model: Path
    speculative: Mapping[str, Any] | None


def recipes(tiny: Path, smollm2: Path) -> dict[str, Recipe]:
    """Every server of the tests, by fixture, in the order in which tests want them."""
    head = {"method": "eagle3", "num_speculative_tokens": K}
    ngram = {"method": "ngram", "num_speculative_tokens": K, "prompt_lookup_max": 4}
    target = tiny / "target"
    return {
        "tiny_eagle3": Recipe("tiny", target, head | {"model": str(tiny / "eagle3")}),
        "tiny_peagle": Recipe(
            "tiny", target, head | {"model": str(tiny / "peagle"), "parallel_drafting": True}
        ),
        "tiny_ngram": Recipe("tiny", target, ngram | {"prompt_lookup_min": 2}),
        "tiny_none": Recipe("tiny", target, None),
        "smollm2_eagle3": Recipe("smollm2-135m", smollm2, head | {"model": str(SMOLLM2_HEAD)}),
    }


class Exposition:
    """One body of /metrics, read with a regular expression per question."""

    def __init__(self, text: str) -> None:
        self.text = text

    def total(self, name: str, **labels: str) -> float:
        """The sum over the series of a full sample name, `_total` included; 0 if there are none."""
        return sum(
            float(value)
            for has, value in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", self.text, re.M)
            if all(f'{key}="{wanted}"' in has for key, wanted in labels.items())
        )

    def names(self, prefix: str) -> set[str]:
        """The names of samples that begin so, those of creation times apart."""
        found = re.findall(rf"^({prefix}\w*)", self.text, re.M)
        return {name for name in found if not name.endswith("_created")}


@dataclass(frozen=True)
class Tally:
    """What a server's counters went up by between two bodies."""

    drafts: int
    draft_tokens: int
    accepted: int
    accepted_per_position: tuple[int, ...]
    """Empty without speculation."""
    generated: int
    finished: int
    request_steps: int
    """Steps of the engine, counted once for each request that got tokens in it, prefill apart."""

    @classmethod
    def between(cls, before: Exposition, after: Exposition) -> Tally:
        def increase(name: str, **labels: str) -> int:
            return round(
                after.total(f"vllm:{name}", **labels) - before.total(f"vllm:{name}", **labels)
            )

        per_position = "spec_decode_num_accepted_tokens_per_pos_total"
        positions = re.findall(rf'^vllm:{per_position}\{{.*position="(\d+)"', after.text, re.M)
        return cls(
            drafts=increase("spec_decode_num_drafts_total"),
            draft_tokens=increase("spec_decode_num_draft_tokens_total"),
            accepted=increase("spec_decode_num_accepted_tokens_total"),
            accepted_per_position=tuple(
                increase(per_position, position=str(i)) for i in range(len(positions))
            ),
            generated=increase("generation_tokens_total"),
            finished=increase("request_success_total"),
            request_steps=increase("inter_token_latency_seconds_count"),
        )

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Accepted at each position, of all drafts."""
        return tuple(accepted / self.drafts for accepted in self.accepted_per_position)

    @property
    def acceptance_length(self) -> float:
        """Tokens per verified draft, the target's own included."""
        return 1 + self.accepted / self.drafts

    @property
    def tokens_per_step(self) -> float:
        """Tokens per request and decoding step, drafted for or not; needs whole requests."""
        return (self.generated - self.finished) / self.request_steps


@dataclass
class Server:
    """A running server. Tests share it: they measure increases, never totals."""

    recipe: Recipe
    engine: LocalEngine

    @property
    def url(self) -> str:
        """Its address, without a trailing slash."""
        return self.engine.url

    def metrics(self) -> Exposition:
        """What /metrics says now."""
        return Exposition(self._ask("GET", "/metrics"))

    def complete(self, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
        """One greedy completion; the whole answer.

        It ends where the model ends it, or at `max_tokens`; the tiny pair never ends by itself. An
        answer forced past its end (`ignore_eos`) is text that no head was trained on: SmolLM2's
        accepts .55 at its first position then, and .66 otherwise, on the same 100 prompts.
        """
        what = {"model": self.recipe.name, "max_tokens": max_tokens, "temperature": 0}
        if isinstance(prompt, str):
            said = {"messages": [{"role": "user", "content": prompt}]}
            body = self._ask("POST", "/v1/chat/completions", what | said)
        else:
            body = self._ask("POST", "/v1/completions", what | {"prompt": prompt})
        answer: dict[str, Any] = json.loads(body)
        return answer

    def send(
        self, prompts: Sequence[Prompt], max_tokens: int = 128, concurrency: int = 8
    ) -> list[dict[str, Any]]:
        """All prompts, so many at a time; returns when every answer is whole."""
        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(lambda prompt: self.complete(prompt, max_tokens), prompts))

    def tally(
        self, prompts: Sequence[Prompt], max_tokens: int = 128, concurrency: int = 8
    ) -> Tally:
        """What the server's own counters say about sending these prompts."""
        before = self.metrics()
        self.send(prompts, max_tokens, concurrency)
        return Tally.between(before, self.metrics())

    @contextmanager
    def traffic(
        self, prompts: Sequence[Prompt], max_tokens: int = 128, concurrency: int = 4
    ) -> Iterator[None]:
        """The prompts over and over, in the background, for as long as the block lasts."""
        enough = threading.Event()
        endless = cycle(prompts)
        turn = threading.Lock()

        def keep_asking() -> None:
            while not enough.is_set():
                with turn:
                    prompt = next(endless)
                self.complete(prompt, max_tokens)

        with ThreadPoolExecutor(concurrency) as pool:
            users = [pool.submit(keep_asking) for _ in range(concurrency)]
            try:
                yield
            finally:
                enough.set()
        for user in users:
            user.result()

    def _ask(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        connection = http.client.HTTPConnection(HOST, self.engine.port, timeout=300)
        try:
            connection.request(
                verb,
                path,
                json.dumps(body) if body is not None else None,
                {"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status != 200:
            raise AssertionError(f"{verb} {path} got {response.status}: {text[:500]}")
        return text


@dataclass
class Pool:
    """Starts servers on demand and stops those that a test does not need when it wants another.

    A server takes two cores to start and 2.5 GB to run, so only those live that one test asked for.
    """

    python: Path
    recipes: Mapping[str, Recipe]
    logs: Path
    _servers: dict[str, Server] = field(default_factory=dict)
    _failed: dict[str, EngineStartError] = field(default_factory=dict)

    def running(self, name: str, needed: Collection[str]) -> Server:
        """The server; `needed`: all that the test wants, which are left as they are."""
        for other in self._servers.keys() - set(needed):
            self._servers.pop(other).engine.stop()
        return self._servers.get(name) or self._start(name)

    def _start(self, name: str) -> Server:
        if name in self._failed:
            raise self._failed[name]  # once is enough: the next test would wait as long
        recipe = self.recipes[name]
        engine = LocalEngine(
            self.python,
            str(recipe.model),
            port=free_port(),
            speculative=recipe.speculative,
            extra_args=("--served-model-name", recipe.name, *SERVE_ARGS),
            env=SERVE_ENV,
            log_path=self.logs / f"{name}.log",
        )
        try:
            engine.start()
            engine.wait_ready(START_DEADLINE_S)
        except BaseException as error:
            engine.stop()
            if isinstance(error, EngineStartError):
                error.add_note(error.log_tail)
                self._failed[name] = error
            raise
        self._servers[name] = Server(recipe, engine)
        return self._servers[name]

    def close(self) -> None:
        """Stops them all."""
        while self._servers:
            self._servers.popitem()[1].engine.stop()
