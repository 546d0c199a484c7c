"""A discrete simulation of one vLLM engine, step by step and request by request.

What it counts, it counts when vLLM does: the laws are those of vLLM's own scheduler and loggers.
- A verify step of a request with a draft adds 1 draft, K draft tokens and the accepted ones;
  accepted tokens past the request's end count, though they are dropped.
- Inter-token latency is one observation per request per step, however many tokens came out.
- The step that completes a prompt yields its first token: one time-to-first-token, no latency.
- Queue, end-to-end, prefill, decode and per-token times are known when a request finishes.
- Gauges are set at the end of a step, so an engine that hangs shows its last ones.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Final

from speccli.core.sim.base import BaseEngine, Clock
from speccli.core.sim.config import SimConfig
from speccli.core.sim.ledger import BLOCK
from speccli.core.sim.request import Listener, QueueFullError, SimRequest

_HALF_BLOCK: Final = BLOCK // 2
"""On average the last KV block of a request is half full."""


@dataclass(slots=True)
class _Step:
    """A step under way: its effects appear when it ends."""

    begin: float
    end: float
    completed: list[SimRequest]
    """Requests whose prompt is complete at the end of this step."""


class SimEngine(BaseEngine):
    """One vLLM engine serving its own traffic and any request submitted to it."""

    def __init__(self, config: SimConfig, clock: Clock, seed: int = 0) -> None:
        super().__init__(config, clock, seed)
        self._waiting: deque[SimRequest] = deque()
        self._prefilling: list[SimRequest] = []
        self._decoding: list[SimRequest] = []
        self._step: _Step | None = None
        self._context = 0
        self._next_arrival = math.inf
        self._returning: deque[float] = deque()
        self._clients = 0
        self.listeners = 0
        self._forget()
        self._acceptance_changed()

    @property
    def next_event_at(self) -> float:
        """When the step under way ends; infinity when nothing is under way."""
        return math.inf if self._step is None or self.stalled else self._step.end

    def submit(
        self, prompt: int, output: int, *, max_tokens: int, reason: str, listener: Listener
    ) -> SimRequest:
        """Queue a request from outside at the present instant.

        Args:
            prompt: Its tokens.
            output: Tokens after which it ends.
            max_tokens: Tokens it asked for at most.
            reason: Why it will have ended, stop or length.
            listener: Told of each of its steps.

        Raises:
            QueueFullError: If the queue is limited and full.
            ValueError: If the request does not fit the model.
        """
        if prompt < 1 or output < 1 or prompt + output > self.config.max_model_len:
            raise ValueError(
                f"prompt of {prompt} and {output} output tokens do not fit the model's "
                f"{self.config.max_model_len}"
            )
        request = SimRequest(self.now, prompt, output, max_tokens, reason, 0)
        request.listener = listener
        if not self._enqueue(request):
            raise QueueFullError
        self.listeners += 1
        return request

    def abort(self, request: SimRequest) -> None:
        """Drop a request whose client has gone; vLLM counts it among the finished."""
        for place in (self._waiting, self._prefilling, self._decoding):
            if request in place:
                place.remove(request)
                if place is not self._waiting:
                    self._context -= request.context
                break
        else:
            return
        if self._step is not None and request in self._step.completed:
            self._step.completed.remove(request)
        request.reason = "abort"
        self._finish(request, self.now)
        self.revision += 1

    # Arrivals ---------------------------------------------------------------------------------

    def _forget(self) -> None:
        for request in (*self._waiting, *self._prefilling, *self._decoding):
            if request.listener is not None:
                request.reason = "error"
                request.listener(self.now, 0, True)
        self._waiting.clear()
        self._prefilling.clear()
        self._decoding.clear()
        self._step = None
        self._context = 0
        self.listeners = 0
        self._returning.clear()
        self._clients = 0
        self._traffic_changed()

    def _traffic_changed(self) -> None:
        traffic = self.config.traffic
        if traffic.clients:
            wanted = round(traffic.clients * self.traffic_scale)
            self._returning.extendleft([self.now] * max(0, wanted - self._clients))
            self._clients = max(self._clients, wanted)
            return
        rate = traffic.rate_per_s * self.traffic_scale
        self._next_arrival = self.now + self.rng.expovariate(rate) if rate > 0 else math.inf

    def _take_arrivals(self, until: float) -> None:
        returning = self._returning
        wanted = round(self.config.traffic.clients * self.traffic_scale)
        while returning and returning[0] <= until:
            at = returning.popleft()
            if self._clients > wanted:
                self._clients -= 1
            else:
                self._enqueue(self._new_request(at))
        while self._next_arrival <= until:
            self._enqueue(self._new_request(self._next_arrival))
            rate = self.config.traffic.rate_per_s * self.traffic_scale
            self._next_arrival += self.rng.expovariate(rate)

    def _new_request(self, at: float) -> SimRequest:
        traffic, room = self.config.traffic, self.config.max_model_len
        prompt = round(self._lognormal(traffic.prompt_mean, traffic.prompt_sigma))
        prompt = min(max(1, prompt), room - 2)
        output = round(self._lognormal(traffic.output_mean, traffic.output_sigma))
        output = min(max(1, output), room - prompt)
        stops = self.rng.random() < traffic.stop_share
        cached = int(prompt * traffic.cached_share) // BLOCK * BLOCK
        most = min(room - prompt, 2 * output) if stops else output
        return SimRequest(at, prompt, output, most, "stop" if stops else "length", cached)

    def _enqueue(self, request: SimRequest) -> bool:
        limit = self.config.max_queued_requests
        if limit is not None and len(self._waiting) >= limit:
            self.ledger.rejections += 1
            self.revision += 1
            if request.listener is None and self.config.traffic.clients:
                self._returning.append(request.arrived_at + 1.0)
            return False
        self._waiting.append(request)
        return True

    # Steps ------------------------------------------------------------------------------------

    def _run(self, to: float) -> None:
        while True:
            step = self._step
            if step is not None:
                if step.end > to:
                    self.now = to
                    return
                self._end_step(step)
                continue
            self._take_arrivals(self.now)
            if not (self._waiting or self._prefilling or self._decoding):
                returning = self._returning[0] if self._returning else math.inf
                arrival = max(self.now, min(self._next_arrival, returning))
                if arrival > to:
                    self.now = to
                    return
                self.now = arrival
                continue
            self._begin_step()

    def _stand_still(self, to: float) -> None:
        self._take_arrivals(to)
        if self._step is not None:
            self._step.end += to - self.now

    def _room(self) -> int:
        requests = len(self._decoding) + len(self._prefilling)
        return self.config.kv_tokens - self._context - _HALF_BLOCK * requests

    def _begin_step(self) -> None:
        config = self.config
        lookahead = config.k + 1
        preempted = self._make_room(lookahead)
        decoding = len(self._decoding)
        budget = max(0, config.max_num_batched_tokens - decoding * lookahead)
        prefill = 0
        completed: list[SimRequest] = []
        if not preempted:
            self._admit(budget)
        for request in self._prefilling:
            if budget <= 0:
                break
            chunk = min(request.todo, budget)
            request.todo -= chunk
            budget -= chunk
            prefill += chunk
            if request.todo == 0:
                completed.append(request)
        share = self.acceptance.match if config.k else 0.0
        seconds = config.cost.seconds(
            decode=decoding * (1 + config.k * share),
            prefill=prefill,
            context=self._context,
            passes=config.draft_passes if decoding else 0.0,
        )
        seconds *= self.rng.lognormvariate(0.0, config.cost.jitter)
        self._step = _Step(self.now, self.now + seconds, completed)

    def _make_room(self, lookahead: int) -> bool:
        """Preempt the newest requests until every decoding one can grow; say whether any was."""
        preempted = False
        while self._room() < len(self._decoding) * lookahead:
            if len(self._prefilling) + len(self._decoding) <= 1:
                break
            if self._prefilling:
                victim = self._prefilling.pop()
            else:
                victim = self._decoding.pop()
                victim.last_at = self.now
            self._context -= victim.context
            victim.todo = victim.context
            victim.preemptions += 1
            self.ledger.preemptions += 1
            self._waiting.appendleft(victim)
            preempted = True
        return preempted

    def _admit(self, budget: int) -> None:
        """Move waiting requests in, first come first served, while seats, room and budget last."""
        waiting, config = self._waiting, self.config
        budget -= sum(request.todo for request in self._prefilling)
        seats = config.max_num_seqs - len(self._decoding) - len(self._prefilling)
        room = self._room()
        while waiting and seats > 0 and budget > 0:
            request = waiting[0]
            need = request.context + _HALF_BLOCK + config.k + 1
            alone = not (self._decoding or self._prefilling)
            if need > room and not alone:
                break
            waiting.popleft()
            if math.isnan(request.scheduled_at):
                request.scheduled_at = self.now
                self.ledger.prefix_queries += request.prompt
                self.ledger.prefix_hits += request.cached
            self._prefilling.append(request)
            self._context += request.context
            room -= need
            seats -= 1
            budget -= request.todo

    def _end_step(self, step: _Step) -> None:
        self._step = None
        self.now = step.end
        ledger = self.ledger
        before = ledger.generation_tokens
        computed = 0
        finished = self._decode(step) if self._decoding else []
        if step.completed:
            gone = {id(request) for request in step.completed}
            self._prefilling = [one for one in self._prefilling if id(one) not in gone]
            for request in step.completed:
                computed += self._first_token(request, step.end)
                if request.left == 0:
                    finished.append(request)
                else:
                    self._decoding.append(request)
        produced = ledger.generation_tokens - before
        if produced:
            ledger.histograms["iteration"].observe(produced + computed)
        for request in finished:
            self._context -= request.context
            self._finish(request, step.end)
        self._take_arrivals(step.end)
        ledger.running = len(self._decoding) + len(self._prefilling)
        ledger.waiting = len(self._waiting)
        used = self._context + _HALF_BLOCK * ledger.running
        ledger.kv_usage = min(1.0, used / self.config.kv_tokens)
        self.revision += 1

    def _decode(self, step: _Step) -> list[SimRequest]:
        """Give every decoding request the tokens of one step; return those that end."""
        random, limits = self.rng.random, self._limits
        drafting = self.config.k > 0
        match = self.acceptance.match
        steps = self.ledger.accepted_steps
        finished: list[SimRequest] = []
        produced = cut = drafts = 0
        for request in self._decoding:
            new = 1
            if drafting and (match >= 1.0 or random() < match):
                accepted = bisect_right(limits, random())
                steps[accepted] += 1
                drafts += 1
                new += accepted
                if request.listener is not None:
                    request.accepted.append(accepted)
            left = request.left - new
            if left <= 0:
                cut -= left
                new += left
                left = 0
                finished.append(request)
            request.left = left
            produced += new
            if request.listener is not None:
                request.last_at = step.end
                request.listener(step.end, new, left == 0)
        ledger = self.ledger
        ledger.draft_tokens += drafts * self.config.k
        ledger.generation_tokens += produced
        ledger.cut_tokens += cut
        ledger.histograms["itl"].observe(step.end - step.begin, len(self._decoding))
        self._context += produced
        if finished:
            self._decoding = [request for request in self._decoding if request.left]
        return finished

    def _first_token(self, request: SimRequest, at: float) -> int:
        """Give a request the token its prefill ends with; return the prompt tokens computed."""
        ledger = self.ledger
        ledger.generation_tokens += 1
        request.left -= 1
        self._context += 1
        computed = 0
        if math.isnan(request.first_at):
            request.first_at = at
            computed = request.prompt - request.cached
            ledger.prompt_tokens += request.prompt
            ledger.cached_tokens += request.cached
            ledger.histograms["ttft"].observe(at - request.arrived_at)
        else:
            ledger.histograms["itl"].observe(at - request.last_at)
        request.last_at = at
        if request.listener is not None:
            request.listener(at, 1, request.left == 0)
        return computed

    def _finish(self, request: SimRequest, at: float) -> None:
        ledger, seen = self.ledger, self.ledger.histograms
        output = request.output - request.left
        ledger.finished[request.reason] += 1
        seen["e2e"].observe(at - request.arrived_at)
        seen["request_prompt"].observe(request.prompt)
        seen["request_generation"].observe(output)
        seen["request_max_generation"].observe(output)
        seen["request_max_tokens"].observe(request.max_tokens)
        seen["request_n"].observe(1)
        seen["request_preemptions"].observe(request.preemptions)
        seen["request_computed"].observe(request.prompt - request.cached)
        scheduled = at if math.isnan(request.scheduled_at) else request.scheduled_at
        first = at if math.isnan(request.first_at) else request.first_at
        seen["queue"].observe(scheduled - request.arrived_at)
        seen["prefill"].observe(first - scheduled)
        seen["decode"].observe(at - first)
        seen["inference"].observe(at - scheduled)
        seen["tpot"].observe((at - first) / (output - 1) if output > 1 else 0.0)
        if request.listener is not None:
            self.listeners -= 1
        elif self.config.traffic.clients:
            self._returning.append(at + self.config.traffic.think_s)

    def _acceptance_changed(self) -> None:
        """Turn acceptance into the limits a uniform number is looked up in.

        The limits are the chances of not getting as far as each position, which ascend, so that
        the limits below the number are the positions accepted.
        """
        self._limits = [1.0 - chance for chance in self.acceptance.unconditional]
