"""An engine whose counters advance by expectation, for fleets of thousands in one process.

No request is followed. Each tick adds what a tick of that traffic would have added, with noise,
and keeps the laws that hold between the counters; latencies are spread over the buckets as
log-normal around their mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from speccli.core.sim.base import BaseEngine, Clock
from speccli.core.sim.config import SimConfig
from speccli.core.sim.ledger import Histogram

_LONG_GAP: Final = 20
"""Ticks beyond which a gap is filled with one tick as long as the gap."""
_LOG_STEP: Final = 0.02


@lru_cache(maxsize=8192)
def _shares(edges: tuple[float, ...], grid: int, sigma: float) -> tuple[float, ...]:
    """Return the share of log-normal observations at or below each edge."""
    centre = grid * _LOG_STEP - sigma * sigma / 2
    scale = sigma * math.sqrt(2)
    return tuple(0.5 * (1 + math.erf((math.log(edge) - centre) / scale)) for edge in edges)


@dataclass(frozen=True, slots=True)
class _Balance:
    """What an engine settles at under its traffic."""

    batch: float
    """Requests in flight."""
    step_s: float
    leaving: float
    """Requests that finish a second."""
    full: bool
    """No seat or room is left, so that whatever comes beyond `leaving` waits."""


class FluidEngine(BaseEngine):
    """One engine in the mean: batch, queue and latencies follow from the traffic and the cost.

    Ticks lie on a grid, so the numbers do not depend on how often `advance` is called, but for a
    gap of more than twenty ticks, which is filled at once.
    """

    listeners: Final = 0
    next_event_at: Final = math.inf

    def __init__(
        self, config: SimConfig, clock: Clock, seed: int = 0, *, tick_s: float = 1.0
    ) -> None:
        super().__init__(config, clock, seed)
        self._tick_s = tick_s
        self._backlog = 0.0
        self._phase = self.rng.random() * tick_s
        self._ticked_at = self.now
        self._forget()

    def _forget(self) -> None:
        self._backlog = 0.0
        self._ticked_at = self.now - self._phase

    def _run(self, to: float) -> None:
        tick_s = self._tick_s
        ticks = int((to - self._ticked_at) / tick_s)
        lengths = [tick_s] * ticks if ticks <= _LONG_GAP else [ticks * tick_s]
        for length in lengths:
            self._ticked_at += length
            self._tick(length)
        self.now = to

    def _stand_still(self, to: float) -> None:
        self._backlog += self._arrivals() * (to - self.now)
        self._ticked_at = to

    def _arrivals(self) -> float:
        traffic = self.config.traffic
        return 0.0 if traffic.clients else traffic.rate_per_s * self.traffic_scale

    def _whole(self, expected: float, spread: float = 1.0) -> int:
        """Return a whole number about an expectation, scattered as a count would be."""
        scatter = self.rng.gauss(0.0, spread * math.sqrt(expected)) if expected > 4 else 0.0
        return max(0, math.floor(expected + scatter + self.rng.random()))

    def _balance(self) -> _Balance:
        """Return what the engine settles at under its traffic."""
        config, traffic, cost = self.config, self.config.traffic, self.config.cost
        per_step = self.acceptance.tokens_per_step if config.k else 1.0
        context = traffic.prompt_mean + traffic.output_mean / 2
        prompt_s = traffic.prompt_mean * (1 - traffic.cached_share) * cost.prefill_token_s
        share = self.acceptance.match if config.k else 0.0
        fixed = cost.seconds(decode=0, prefill=0, context=0, passes=config.draft_passes)
        each = cost.seconds(decode=1 + config.k * share, prefill=0, context=context, passes=0)
        each -= cost.base_s
        # Each request brings its prompt's computation along, spread over its steps.
        each += prompt_s * per_step / traffic.output_mean
        most = min(float(config.max_num_seqs), config.kv_tokens / context)
        if traffic.clients:
            batch = min(most, traffic.clients * self.traffic_scale)
            self._backlog = max(0.0, traffic.clients * self.traffic_scale - most)
        else:
            demand = self._arrivals() * traffic.output_mean
            spare = per_step - demand * each
            batch = demand * fixed / spare if spare > 0 else most
            if self._backlog > 0 or batch > most:
                batch = most
        full = batch >= most
        if not full:
            batch = min(most, batch * self.rng.lognormvariate(0.0, 0.05))
        step_s = fixed + each * max(1.0, batch)
        return _Balance(batch, step_s, batch * per_step / step_s / traffic.output_mean, full)

    def _tick(self, length: float) -> None:
        ledger, traffic = self.ledger, self.config.traffic
        balance = self._balance()
        batch, step_s, leaving = balance.batch, balance.step_s, balance.leaving
        if not traffic.clients:
            grown = self._backlog + (self._arrivals() - leaving) * length
            self._backlog = max(0.0, grown) if balance.full else 0.0
        done = self._whole(leaving * length)
        request_steps = self._whole(batch * length / step_s, 0.3)
        accepted = self._draft(request_steps)
        cut = min(accepted, self._whole(done * self.acceptance.mean_accepted / 2))
        produced = done + request_steps + accepted - cut
        ledger.generation_tokens += produced
        ledger.cut_tokens += cut
        prompt = round(done * traffic.prompt_mean)
        cached = round(prompt * traffic.cached_share)
        ledger.prompt_tokens += prompt
        ledger.cached_tokens += cached
        ledger.prefix_queries += prompt
        ledger.prefix_hits += cached
        stops = min(done, self._whole(done * traffic.stop_share, 0.3))
        ledger.finished["stop"] += stops
        ledger.finished["length"] += done - stops
        steps = max(1, round(request_steps / max(1.0, batch))) if request_steps else 0
        if steps:
            self._spread("iteration", (produced + prompt - cached) / steps, 0.5, steps)
            self._spread("itl", step_s, 0.12, request_steps)
        if done:
            self._observe_requests(done, step_s, leaving)
        ledger.running = round(batch)
        ledger.waiting = round(self._backlog)
        context = batch * (traffic.prompt_mean + traffic.output_mean / 2)
        ledger.kv_usage = min(1.0, context / self.config.kv_tokens)
        self.revision += 1

    def _draft(self, request_steps: int) -> int:
        """Count the drafts of some request steps; return the tokens accepted."""
        if not self.config.k:
            return 0
        ledger = self.ledger
        reached = min(request_steps, self._whole(request_steps * self.acceptance.match, 0.3))
        ledger.draft_tokens += reached * self.config.k
        survivors = [reached]
        for chance in self.acceptance.conditional:
            expected = survivors[-1] * chance
            survivors.append(
                min(survivors[-1], self._whole(expected, math.sqrt(1 - chance)) if chance else 0)
            )
        survivors.append(0)
        for length, (here, beyond) in enumerate(pairwise(survivors)):
            ledger.accepted_steps[length] += here - beyond
        return sum(survivors[1:])

    def _observe_requests(self, done: int, step_s: float, leaving: float) -> None:
        traffic, cost = self.config.traffic, self.config.cost
        per_step = self.acceptance.tokens_per_step if self.config.k else 1.0
        computed = traffic.prompt_mean * (1 - traffic.cached_share)
        queue = self._backlog / leaving + step_s / 2
        prefill = step_s + computed * cost.prefill_token_s
        decode = max(step_s, (traffic.output_mean - 1) / per_step * step_s)
        for name, mean, sigma in (
            ("ttft", queue + prefill, 0.35),
            ("tpot", step_s / per_step, 0.15),
            ("e2e", queue + prefill + decode, traffic.output_sigma),
            ("queue", queue, 0.8),
            ("inference", prefill + decode, traffic.output_sigma),
            ("prefill", prefill, 0.35),
            ("decode", decode, traffic.output_sigma),
            ("request_prompt", traffic.prompt_mean, traffic.prompt_sigma),
            ("request_generation", traffic.output_mean, traffic.output_sigma),
            ("request_max_generation", traffic.output_mean, traffic.output_sigma),
            ("request_max_tokens", traffic.output_mean * 2, traffic.output_sigma),
            ("request_computed", computed, traffic.prompt_sigma),
        ):
            self._spread(name, mean, sigma, done)
        histograms = self.ledger.histograms
        histograms["request_n"].observe(1, done)
        histograms["request_preemptions"].observe(0, done)

    def _spread(self, name: str, mean: float, sigma: float, times: int) -> None:
        """Observe a log-normal about a mean many times at once."""
        histogram: Histogram = self.ledger.histograms[name]
        mean = max(mean, 1e-9)
        grid = round(math.log(mean) / _LOG_STEP)
        offset = self.rng.random()
        counts, before = histogram.counts, 0
        for place, share in enumerate(_shares(histogram.edges, grid, sigma)):
            if share < 1e-6:
                continue
            upto = min(times, int(share * times + offset))
            counts[place] += upto - before
            before = upto
            if before == times:
                break
        counts[-1] += times - before
        histogram.total += mean * times
