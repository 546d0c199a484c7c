"""Scraping the pods of a deployment through the API server, as they come and go.

The blocking client finds the pods and logs in; the pages come over aiohttp with the same
credentials, and so through the deadlines, limits and identification of direct scraping. (64 pages
of 53 kB over TLS cost 40 ms of CPU either way, by aiohttp or by 32 threads of the client.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from speccli.core.kube.client import Cluster, proxy_path
from speccli.core.kube.discover import Pod, find, read_pod
from speccli.core.kube.errors import Asked, ClusterError, TimedOut, Unreachable, refusal, status_of
from speccli.core.kube.notes import Notes
from speccli.core.kube.watch import PodWatch
from speccli.core.sources.base import Scrape
from speccli.core.sources.scrape import ScrapeSource, explain
from speccli.core.sources.targets import Target

if TYPE_CHECKING:
    import ssl

    import aiohttp

    from speccli.core.kube.credentials import Credentials

_LOOK_S = 0.05
_STILL_S = 3.0
"""How long the API server's last word that it is there is believed."""


class PodSource(ScrapeSource):
    """Scrapes every pod of a deployment; its targets are called as the pods are."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        name: str,
        *,
        interval_s: float = 1.0,
        deadline_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is asked before the first round.

        Args:
            connect: Logs in; called by a thread.
            name: The deployment's.
            interval_s: Seconds from one round to the next.
            deadline_s: Wall clock for one pod's answer.
            clock: Unix seconds.
        """
        super().__init__([], interval_s=interval_s, deadline_s=deadline_s, clock=clock)
        self.name = name
        self.only = ""
        """A further label selector: one pool of several; set it before the first round."""
        self._connect = connect
        self._cluster: Cluster | None = None
        self._watch: PodWatch | None = None
        self._notes: Notes | None = None
        self._seen = -1
        self._pods: dict[str, Pod] = {}
        self._asked_as: dict[str, Pod] = {}
        """Each as it was when it was asked last."""
        self._credentials: Credentials | None = None
        self._heard_at = 0.0
        self._still: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()

    @property
    def present(self) -> frozenset[str]:
        """The pods there are; where there is none, the deployment itself."""
        return frozenset(self._pods) or frozenset({self.name})

    async def scrapes(self) -> list[Scrape]:
        """One round over every pod that may answer, and the word of the cluster on the others.

        Raises:
            SourceError: the API server does not answer, or does not let us.
        """
        await self._arrive()
        return [*await super().scrapes(), *self._others()]

    async def soon(self) -> list[Scrape]:
        """The same, ending in time for the next round."""
        await self._arrive()
        return [*await super().soon(), *self._others()]

    @property
    def awaited(self) -> tuple[str, ...]:
        """Pods that owe an answer, or of which the cluster may still say more."""
        unread = self._notes.unread(self._pods.values()) if self._notes is not None else ()
        return (*super().awaited, *unread)

    async def unheard(self) -> list[Scrape]:
        """What has come in, once every pod has been heard and looked into."""
        found = await super().unheard()
        for _ in range(round(_STILL_S / _LOOK_S)):
            if self._notes is None or not self._notes.unread(self._pods.values()):
                break
            self._notes.look(self._pods.values())
            await asyncio.sleep(_LOOK_S)
        return [*found, *self._others()]

    async def aclose(self) -> None:
        """Watch no more, and close the connections."""
        if self._watch is not None:
            self._watch.end()
        if self._still is not None:
            self._still.cancel()
        await super().aclose()

    # ---- the cluster ----

    async def _arrive(self) -> None:
        """Log in once, then see which pods there are."""
        if self._watch is None:
            self._watch = await asyncio.to_thread(self._begin)
        assert self._cluster is not None
        self._use(await asyncio.to_thread(self._cluster.credentials))
        watch = self._watch
        if watch.changes != self._seen:
            self._seen = watch.changes
            self._take({pod.name: pod for pod in map(read_pod, watch.pods)})
        if self._notes is not None:
            self._notes.look(self._pods.values())

    def _begin(self) -> PodWatch:
        self._cluster = self._cluster or self._connect()
        found = find(self._cluster, self.name)
        if self.only:
            found = replace(found, selector=f"{found.selector},{self.only}")
        watch = PodWatch(self._cluster, found)
        watch.begin()
        self._notes = Notes(self._cluster, found.namespace, lambda: watch.pods)
        return watch

    def _use(self, credentials: Credentials) -> None:
        if credentials is self._credentials or self._cluster is None:
            return
        proxy = self._cluster.through
        if proxy and not proxy.startswith("http"):
            raise ClusterError(
                f"pods cannot be read through a proxy of this kind ({proxy.partition(':')[0]})",
                hint="give an http proxy, or a port-forward and --endpoint",
            )
        self._how = {"proxy": proxy} if proxy else {}
        if name := credentials.configuration.tls_server_name:
            self._how["server_hostname"] = name
        if self._credentials is not None and credentials.configuration.cert_file:
            session, self._session = self._session, None  # connections are of the old certificate
            if session is not None:
                asyncio.get_running_loop().call_later(
                    self._deadline_s, lambda: asyncio.ensure_future(session.close())
                )
        self._credentials = credentials

    def _take(self, pods: dict[str, Pod]) -> None:
        """Other pods, or other states of them."""
        assert self._cluster is not None
        assert self._watch is not None
        before, self._pods = self._pods, pods
        self._asked_as = {name: pod for name, pod in self._asked_as.items() if name in pods}
        place, server = self._watch.found.namespace, self._cluster.server
        self.watch_over(
            [
                Target(pod.name, server + proxy_path(place, pod.name, pod.port, "metrics"))
                for pod in pods.values()
                if pod.running
            ]
        )
        for pod in pods.values():
            former = before.get(pod.name)
            if former and (former.incarnation, former.stage) != (pod.incarnation, pod.stage):
                self.ask_now(pod.name)

    # ---- one pod ----

    def _tls(self) -> ssl.SSLContext | bool:
        return (self._credentials.tls if self._credentials else None) or True

    def _headers(self, target: Target) -> dict[str, str]:
        told = self._credentials.authorization if self._credentials else None
        return {"Authorization": told} if told else {}

    async def _asked(
        self, session: aiohttp.ClientSession, target: Target, url: str, headers: dict[str, str]
    ) -> Scrape:
        used = self._credentials
        if (pod := self._pods.get(target.name)) is not None:
            self._asked_as[target.name] = pod
        scrape = await self._get(session, target, url, headers)
        told = self._told(scrape)
        if told and scrape.status == 401 and used is not None:
            await self._renew(used)
            headers |= self._headers(target)  # what else this pod is asked goes on with them
            scrape = await self._get(self._open(), target, url, headers)
            told = self._told(scrape)
        self._heard_at = time.monotonic()
        if told:
            return self._refused(target, scrape, told)
        return replace(scrape, pool=pod.pool) if pod is not None else scrape

    def _deployed_as(self, target: Target) -> dict[str, str]:
        pod = self._pods.get(target.name)
        return {"meant": pod.meant} if pod is not None and pod.meant else {}

    def _told(self, scrape: Scrape) -> dict[str, Any] | None:
        """What the API server itself says in a page's place; None where the pod spoke."""
        return status_of(scrape.body) if (scrape.status or 0) >= 400 else None

    async def _renew(self, used: Credentials) -> None:
        assert self._cluster is not None
        async with self._renewing:
            if self._credentials is used:
                self._use(await asyncio.to_thread(self._cluster.renew, used))

    def _refused(self, target: Target, scrape: Scrape, told: dict[str, Any]) -> Scrape:
        """What it means that the API server gave no page of the pod's.

        Raises:
            ClusterError: it is the same for every pod.
        """
        status, words = scrape.status or 0, str(told.get("message") or "")
        if status in {401, 403}:
            place = self._watch.found.namespace if self._watch else None
            raise refusal(status, scrape.body, Asked("ask", f"pod {target.name}", place))
        if status == 404:
            return Scrape(scrape.at, target.name, error="it is gone", stage="terminating")
        if "refused" in words:
            why = "connect refused"
        elif status == 429:
            why = "the API server is busy"
        else:
            why = f"the API server cannot reach it: {' '.join(words.split())[:200]}"
        return self._failed(target, why)

    def _failed(self, target: Target, why: str) -> Scrape:
        """No page: the pod's own state, now or when it was asked, says whether that is a fault."""
        for pods in (self._pods, self._asked_as):
            pod = pods.get(target.name)
            if pod is not None and pod.stage is not None:
                return self._doing(pod)
        return self._error(target, why)

    async def _unasked(self, target: Target, error: Exception, url: str) -> Scrape:
        """Between here and the API server something is wrong: no pod's fault."""
        import aiohttp

        if isinstance(error, aiohttp.ClientError | OSError):
            server = self._cluster.server if self._cluster else url
            raise Unreachable(f"cannot reach the API server {server}: {explain(error)}") from error
        return await super()._unasked(target, error, url)

    async def _late(self, target: Target) -> Scrape:
        """The pod hangs, or the API server does: that is asked once for all."""
        if time.monotonic() - self._heard_at > _STILL_S:
            if self._still is None or self._still.done():
                self._still = asyncio.create_task(self._ask_server())
            await self._still
        return self._failed(target, f"no answer within {self._deadline_s:g} s")

    async def _ask_server(self) -> None:
        assert self._cluster is not None
        assert self._credentials is not None
        try:
            async with (
                asyncio.timeout(min(_STILL_S, self._deadline_s)),
                self._open().get(f"{self._cluster.server}/version", **self._how) as response,
            ):
                await response.read()
        except TimeoutError:
            raise TimedOut(
                f"no answer from the API server {self._cluster.server}", hint="is the VPN up?"
            ) from None
        except Exception as error:  # noqa: BLE001 - the client's many errors, one word each
            raise Unreachable(
                f"cannot reach the API server {self._cluster.server}: {explain(error)}"
            ) from error
        self._heard_at = time.monotonic()

    # ---- pods that are not asked ----

    def _others(self) -> list[Scrape]:
        """The cluster's word on pods that owe no answer."""
        if not self._pods:
            at = self._clock()
            return [Scrape(at, self.name, error="it has no pods", stage="pending")]
        return [
            self._doing(pod)
            for pod in self._pods.values()
            if not pod.running or (pod.stage == "loading" and pod.name not in self._flight)
        ]

    def _doing(self, pod: Pod) -> Scrape:
        scrape = Scrape(self._clock(), pod.name, error=pod.detail, stage=pod.stage)
        if pod.crashed:
            scrape = replace(scrape, error=f"crashed: {pod.detail}")
        elif pod.stage is None and not pod.running:
            scrape = replace(scrape, error="its engine does not run")
        return self._notes.on(pod, scrape) if self._notes is not None else scrape
