"""How a move is made: the traffic to another pool, or pods replaced; and back where it is refuted.

Servers first, then the traffic; nothing is taken from what serves before what comes is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from speccli.core.bench.results import Result
from speccli.core.deploy import cluster as deploying
from speccli.core.deploy.asked import Asked, Reporter
from speccli.core.errors import ExitCode, SpecctlError
from speccli.core.fallback import pools
from speccli.core.fallback.ours import Ours
from speccli.core.fallback.outcome import End, Mechanism, Outcome, doubt, refuted, without
from speccli.core.fallback.retry import persistently
from speccli.core.fallback.serving import Serving
from speccli.core.kube.proof import ANSWER_S
from speccli.core.manifests.options import Traffic
from speccli.core.recipes.model import Recipe

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Connect = Callable[[float | None], "Cluster"]
_RAISE_S = 900.0
"""How long further servers of a pool are waited for, where its autoscaler makes them."""
_HELD_S = 180.0
"""How long a main pool's autoscaler is kept from taking servers away once it serves: its metrics
tell of the new load only then."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How deployments of a move are made."""

    accept: tuple[str, ...] = ()
    wait: bool = True
    timeout_s: float | None = None
    bench: Result | None = None
    """Of the rungs: by their speed a standby gets its servers."""


class Mover:
    """One move of one deployment."""

    def __init__(
        self,
        connect: Connect,
        here: Serving,
        reporter: Reporter,
        terms: Terms,
        ours: Ours,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """`ours`: of the call that this is a part of: it may have been begun again since."""
        self.here = here
        self.cluster, self.clock, self.sleep = connect(None), clock, sleep
        self.terms = terms
        self._connect, self._reporter = connect, reporter
        self._ours = ours
        self._notes: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of the move so far."""
        return tuple(self._notes)

    def note(self, text: str) -> None:
        """Something to know of the move."""
        self._notes.append(text)
        self._reporter.warn(text)

    def warm(self, pool: Traffic) -> pools.Warm:
        """Whether a pool may take the traffic, asked now."""
        return pools.warm(self.cluster, self._connect(ANSWER_S), self.here, pool)

    # ---- the traffic ----

    def switch(self, to: Traffic, seen: pools.Warm, *, restores: int | None = None) -> Outcome:
        """Servers first, then the traffic, then the proof that it is taken.

        Where nobody is served, the traffic does not wait for further servers: they come with it.
        To the main pool it goes only once that has all that the load needs: the standby serves.
        """
        here = self.here
        if seen.doubt is not None:
            self.note(f"the pool {to} could not be proven before it serves: {seen.doubt}")
        served, need = pools.serves(self.cluster, here), self._need(to)
        if to == "main" and served and (short := pools.short(need)):
            return self._stays(short, restores)
        goal = pools.goal(to, need)
        if served and (goal > need.there or seen.ready < min(goal, need.wanted)):
            ready = self._raise(to, need)
            if to == "main" and ready < need.wanted:
                words = f"{ready} of {need.wanted} servers of the pool main were ready in time"
                return self._stays(f"{words} ({need.words})", restores)
        elif goal > need.there:
            self.note(
                f"no server of the pool {here.traffic} is ready: the pool {to} takes the traffic "
                f"with {seen.ready} of {goal} servers, and gets the others meanwhile"
            )
        raised = pools.raised(here, to, need)
        asked = replace(here.asked(traffic=to, raised=raised), restores=restores)
        made = self._switched(here, asked, replace(here, options=asked.options).words)
        return self._let_go(made, asked)

    def completed(self, former: Serving) -> Outcome:
        """A switch that was begun, to its end."""
        asked = replace(self.here.asked(), restores=self.here.revision.restores)
        return self._let_go(self._switched(former, asked, self.here.words), asked)

    def lacks(self, to: Traffic) -> str | None:
        """Why a pool cannot have the servers that the load needs now; None: it can.

        Where nobody is served that is no reason: any server is better than none.
        """
        if not pools.serves(self.cluster, self.here):
            return None
        return pools.short(pools.need(self.cluster, self.here, to))

    def _stays(self, why: str, restores: int | None) -> Outcome:
        """As it was, since what comes has too few servers; a canary and its verdict go too."""
        here = self.here
        self._reporter.warn(f"{why}: the traffic stays with the pool {here.traffic}")
        back = here.revision.number if restores is None else restores
        asked = replace(here.asked(), restores=back, awaited=(here.traffic,))
        last = self.deploy(asked, wait=True)
        words = f"{here.name}: {why}; {here.words} serves on"
        took = self.clock() - self._ours.began
        return self._outcome("switch", here.words, here.words, "stayed", words, took, last)

    def _need(self, to: Traffic) -> pools.Need:
        """How many servers of a pool the traffic needs, as far as there are GPUs."""
        need = pools.need(self.cluster, self.here, to, self.terms.bench, sleep=self.sleep)
        if need.wanted > need.goal:
            self.note(
                f"the pool {to} would need {need.wanted} servers ({need.words}), and there are "
                f"GPUs for {need.goal}"
            )
        return need

    def _raise(self, to: Traffic, need: pools.Need) -> int:
        """See that a pool has them, before it takes the traffic; how many are ready."""
        here, enough = self.here, min(need.goal, need.wanted)
        self._reporter.say(
            f"the pool {to} gets {enough} servers before it takes the traffic: {need.words}"
        )
        failed = False
        if need.goal > need.there:
            asked = here.asked(raised={**here.options.raised, to: need.goal})
            asked = replace(asked, awaited=(to,), stragglers_s=pools.STRAGGLERS_S)
            done = self.deploy(asked, wait=True)
            failed = done.ended is not None and done.ended.end == "failed"
            if wrong := refuted(done) or without(done):
                self.note(f"further servers of the pool {to}: {wrong}")
        patience = 0.0 if failed else self.terms.timeout_s or _RAISE_S
        ready = pools.await_servers(
            self.cluster, here, to, enough, patience, clock=self.clock, sleep=self.sleep
        )
        if ready < enough:
            self.note(f"{ready} of {enough} servers of the pool {to} were ready in time")
        return ready

    def _let_go(self, made: Outcome, asked: Asked) -> Outcome:
        """The main pool's autoscaler decides again, once it sees what runs there."""
        options = asked.options
        if options.traffic != "main" or "main" not in options.raised or made.end == "undone":
            return made
        self._reporter.say(f"its autoscaler decides again in {_HELD_S:.0f} s")
        self.sleep(_HELD_S)
        told = replace(asked, options=replace(options, raised={}), awaited=("main",))
        try:
            self.deploy(told, wait=True)
        except SpecctlError as error:
            self.note(
                f"the main pool keeps {options.raised['main']} servers at least until "
                f"{made.name} is deployed again: {error.message}"
            )
        return replace(made, notes=self.notes)

    def _switched(self, former: Serving, asked: Asked, target: str) -> Outcome:
        to = asked.options.traffic
        self._reporter.say(f"the pool {to} takes the traffic")
        asked = replace(asked, awaited=(to,), stragglers_s=pools.STRAGGLERS_S)
        done = self.deploy(asked, wait=True)
        took = self.clock() - self._ours.began
        wrong = refuted(done) or pools.leads_astray(
            self.cluster, self.here, to, clock=self.clock, sleep=self.sleep
        )
        if wrong is None:
            if (lacking := without(done)) and lacking not in " ".join(self._notes):
                self.note(lacking)
            return self._moved("switch", former.words, target, done, took)
        if not pools.serves(self.cluster, former):
            wrong = f"{wrong}; no server of the pool {former.traffic} is ready to take it back"
            if self._answers(done, self.here, to):
                return self._kept("switch", former.words, target, done, wrong, took)
        self._reporter.warn(f"{wrong}: the traffic goes back to the pool {former.traffic}")
        # What it goes back to may be as sick as before: it is not waited for.
        undone = self.deploy(former.again(), wait=False)
        return self._undone("switch", former.words, target, undone, wrong, took)

    # ---- pods replaced ----

    def roll(self, to: Serving, former: Serving, *, restores: int | None = None) -> Outcome:
        """A rolling change; `former`: what an undo brings back."""
        asked = replace(to.asked(), restores=restores, awaited=to.serving_pools)
        served = pools.serves(self.cluster, former)
        done = self.deploy(asked, wait=self.terms.wait)
        took = self.clock() - self._ours.began
        wrong = refuted(done)
        if wrong is None:
            return self._moved("rolling", former.words, to.words, done, took)
        if not served and self._answers(done, to, to.options.traffic):
            why = f"{wrong}; no server was ready before"
            return self._kept("rolling", former.words, to.words, done, why, took)
        self._reporter.warn(f"{wrong}: revision {former.revision.number} is brought back")
        again = replace(former.again(), awaited=former.serving_pools)
        undone = self.deploy(again, wait=True)
        return self._undone("rolling", former.words, to.words, undone, wrong, took)

    def behind(
        self,
        recipe: Recipe,
        *,
        restores: int | None = None,
        restarted: Mapping[str, int] | None = None,
    ) -> Outcome:
        """The main pool is replaced while the standby serves, and then takes the traffic."""
        here, target = self.here, replace(self.here, recipe=recipe)
        if short := self.lacks("main"):
            return self._stays(short, restores)
        if restarted is not None:
            target = replace(target, options=replace(here.options, restarted=restarted))
        self._reporter.say("the main pool is replaced while the pool standby serves")
        done = self.deploy(replace(target.asked(), awaited=("main",)), wait=True)
        took = self.clock() - self._ours.began
        main = replace(target, options=replace(target.options, traffic="main"))
        if wrong := refuted(done):
            self._reporter.warn(f"{wrong}: revision {here.revision.number} is brought back")
            undone = self.deploy(replace(here.again(), awaited=("standby",)), wait=True)
            return self._undone("rolling", here.words, main.words, undone, wrong, took)
        if done.ended is None or done.ended.end != "done":
            why = doubt(done) or "begun, and not waited for"
            words = (
                f"{here.name}: the main pool with {main.words} is {why}; {here.words} serves on "
                "until it is proven, by the same command"
            )
            told = self._outcome("rolling", here.words, main.words, "stayed", words, took, done)
            return replace(told, under_way=True)
        self.here = replace(target, revision=done.record.current)
        moved = self.switch("main", self.warm("main"), restores=restores)
        return replace(moved, mechanism="rolling", source=here.words)

    # ---- both ----

    def _answers(self, done: deploying.Outcome, of: Serving, pool: Traffic) -> bool:
        """Whether anything of a pool answers; asked where the rollout came to no proof."""
        if done.proof is not None:
            return done.proof.answers
        return pools.warm(self.cluster, self._connect(ANSWER_S), of, pool).answers

    def deploy(self, asked: Asked, *, wait: bool) -> deploying.Outcome:
        """One deployment of the move; the very same again where its answer never came.

        To choose again what to do would be another step, or the same mistake.
        """
        accept = (*asked.accept, *self.terms.accept)
        asked = replace(asked, accept=accept, wait=wait, timeout_s=self.terms.timeout_s)

        def once() -> deploying.Outcome:
            return deploying.deploy(self._connect, asked, self._reporter, self._ours.begins)

        return persistently(once, self._reporter, clock=self.clock, sleep=self.sleep)

    def _moved(
        self, how: Mechanism, source: str, target: str, done: deploying.Outcome, took: float
    ) -> Outcome:
        told = f"{self.here.name}: {source} → {target}"
        if done.exit_code is ExitCode.OK:
            end: End = "moved"
            after = f" in {took:.0f} s" if done.ended else ", begun and not waited for"
            words = f"{told}{after}"
        else:
            end = "unproven"
            words = f"{told}: {doubt(done) or 'whether it drafts is not to be told'}"
        return self._outcome(how, source, target, end, words, took, done)

    def _undone(
        self,
        how: Mechanism,
        source: str,
        target: str,
        undone: deploying.Outcome,
        why: str,
        took: float,
    ) -> Outcome:
        words = f"{self.here.name}: {target} was refuted ({why}), and {source} "
        wrong = refuted(undone) or doubt(undone)
        if undone.ended is None:
            words += "has the requests again"
        elif wrong is None:
            words += "serves again"
        else:
            words += f"was brought back, but {wrong}"
            self.note(f"{source} was brought back, but {wrong}")
        return self._outcome(how, source, target, "undone", words, took, undone)

    def _kept(
        self,
        how: Mechanism,
        source: str,
        target: str,
        done: deploying.Outcome,
        why: str,
        took: float,
    ) -> Outcome:
        """Refuted, and kept: it answers, and what was before does not."""
        self.note(f"{target} is kept, since what was before does not answer: {why}")
        words = f"{self.here.name}: {source} → {target}, which is refuted and kept: {why}"
        return self._outcome(how, source, target, "unproven", words, took, done)

    def _outcome(
        self,
        how: Mechanism,
        source: str,
        target: str,
        end: End,
        words: str,
        took: float,
        last: deploying.Outcome,
    ) -> Outcome:
        name, place = self.here.name, self.here.namespace
        return Outcome(name, place, how, source, target, end, words, took, last, self.notes)
