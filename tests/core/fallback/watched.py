"""A deployment under watch on a cluster in memory: what is found is said by the test."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speccli.core.alert.notify import Notifier
from speccli.core.alert.notify.notice import News
from speccli.core.alert.verdict import Verdict
from speccli.core.baseline import Baseline
from speccli.core.config import Settings
from speccli.core.fallback.gauges import Gauges
from speccli.core.fallback.kept import Kept, from_object
from speccli.core.fallback.sight import Looking, Seen
from speccli.core.fallback.standing import Label
from speccli.core.fallback.terms import Sign
from speccli.core.fallback.watch import Watch
from speccli.core.kube.errors import Asked, Conflict, Unreachable
from speccli.core.stats.snapshot import Snapshot
from speccli.core.values import Number
from tests.core.deploy.fake_cluster import FakeCluster
from tests.core.fallback.situations import sign
from tests.core.fallback.test_carry import World
from tests.core.findings.bodies import answer, good, snapshot, zero

A = "http://a:8000"
ZERO = sign("ZERO_ACCEPTANCE", "critical")
LOW = sign()
Object = dict[str, Any]


class Server:
    """The fake cluster with what a watch needs beside it: POST, a fence, being away."""

    def __init__(self, fake: FakeCluster) -> None:
        self._fake = fake
        self.fence: Any = None
        self.away = False

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise Unreachable("cannot reach the API server https://fake: refused")
        return getattr(self._fake, name)

    def path(self, version: str, kind: str, name: str | None, place: str | None) -> tuple[str, str]:
        return f"{kind}/{name or ''}", place or "llm"

    def apply(self, obj: Mapping[str, Any], *args: Any, **more: Any) -> Object:
        self._may()
        return self._fake.apply(obj, *args, **more)

    def delete(self, *args: Any, **more: Any) -> bool:
        self._may()
        return self._fake.delete(*args, **more)

    def _may(self) -> None:
        if self.away:
            raise Unreachable("cannot reach the API server https://fake: refused")
        if self.fence is not None:
            self.fence()

    def ask(self, method: str, path: str, asked: Asked, *, query: Any, body: Object) -> Object:
        self._may()
        kind, meta = body["kind"], body["metadata"]
        name = meta.get("name") or f"{meta['generateName']}{len(self._fake.objects)}"
        if (kind, name) in self._fake.objects:
            raise Conflict(f"cannot {asked}: it exists")
        body = {**body, "metadata": {**meta, "name": name, "resourceVersion": f"p{name}"}}
        self._fake.objects[kind, name] = body
        return body


@dataclass
class Led:
    """A lease as a test says."""

    leads: bool = True
    who: str = f"{socket.gethostname()}_1"
    holder: str | None = None
    trouble: str | None = None
    somebody: bool = True

    @property
    def known(self) -> bool:
        return self.leads or self.somebody


class Seeing:
    """What is seen of each label."""

    def __init__(self, watched: Watched, label: Label) -> None:
        self._watched, self.label = watched, label
        watched.labels.append(str(label))

    async def look(self) -> Seen:
        told = self._watched
        told.looks += 1
        if told.blind:
            return Seen(Verdict("unknown", told.blind), (), told.blind, False, told.batch)
        signs = told.signs.get(self.label.method, ())
        verdict = Verdict("ok", "", snapshot=told.snapshot)
        return Seen(verdict, signs, None, True, told.batch)

    async def aclose(self, _at: float) -> None:
        return

    async def leave(self) -> None:
        self._watched.left.append(str(self.label))


@dataclass
class Channel:
    """Somebody who is told."""

    name: str = "channel"
    mark: str = "m"
    repeats: bool = False
    lines: list[str] = field(default_factory=list)

    async def unusable(self) -> str | None:
        return None

    async def tell(self, news: News) -> None:
        self.lines += [line.partition(":")[0] for line in news.lines]


class Watched:
    """A deployment of EAGLE-3 with a warm n-gram standby, and a watch on it."""

    def __init__(self, *changes: str, auto: bool = True, standby: bool = True) -> None:
        fast = ("fallback.hold=60s", "fallback.cool_down=10m", "fallback.restore_after=1h")
        self.world = World(*fast, *changes, standby=standby)
        self.server = Server(self.world.fake)
        self.at = time.time()
        self.signs: dict[str, tuple[Sign, ...]] = {}
        self.blind: str | None = None
        self.labels: list[str] = []
        self.left: list[str] = []
        self.looks = 0
        self.batch = Number.known(8.0)
        self.baselines: tuple[Baseline, ...] = ()
        self.lines: list[str] = []
        self.channel = Channel()
        self.lease = Led()
        self.snapshot: Snapshot = snapshot([answer(0, A, zero())], [answer(60, A, good())])
        self.watch = self.another(auto=auto)

    def connect(self, _: float | None = None) -> Any:
        """The cluster."""
        return self.server

    def another(self, *, auto: bool = True, lease: Led | None = None) -> Watch:
        """Another process that watches the same."""
        looking = Looking("chat", "llm", Settings(), 30.0, self.baselines)
        return Watch(
            self.connect,
            lease or self.lease,  # type: ignore[arg-type]
            looking,
            auto,
            Gauges("chat", 30.0, clock=lambda: self.at),
            Notifier([self.channel], "chat"),
            self.lines.append,
            self.world.heard,
            clock=lambda: self.at,
            see=lambda _looking, now, _warn: Seeing(self, now.label),  # type: ignore[arg-type,return-value]
        )

    def look(self, *, seconds: float = 0.0, watch: Watch | None = None) -> None:
        """Looks every 30 s for so long, and waits for moves."""
        watch, ends = watch or self.watch, self.at + seconds

        async def go() -> None:
            while True:
                await watch.round()
                if watch._moving is not None:
                    await asyncio.to_thread(watch._moving.wait, 30.0)
                    await watch.round()
                if self.at >= ends:
                    return
                self.at += 30

        asyncio.run(go())

    @property
    def kept(self) -> Kept:
        return from_object(self.world.fake.objects["ConfigMap", "chat-fallback"])

    @property
    def audit(self) -> list[str]:
        return [each.what for each in self.kept.audit]

    @property
    def events(self) -> list[str]:
        return [v["reason"] for (k, _), v in self.world.fake.objects.items() if k == "Event"]

    @property
    def said(self) -> list[Object]:
        return [json.loads(line) for line in self.lines]

    def page(self, watch: Watch | None = None) -> dict[str, float]:
        """Its metrics, by name and labels without the deployment's."""
        found = {}
        for line in (watch or self.watch).gauges.page().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.replace('deployment="chat",', "").replace('{deployment="chat"}', "")
                found[name.removeprefix("specctl_fallback_")] = float(value)
        return found
