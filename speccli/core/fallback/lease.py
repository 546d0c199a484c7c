"""One leader among several watchers: a Lease of coordination.k8s.io, as controllers hold one.

The times and rules are those of Kubernetes' own leader election (15 s, 10 s, 2 s). A holder's time
is up once its record has not changed for its duration *on this machine's clock*: clocks of other
machines decide nothing. A leader that could not renew for 10 s calls itself none, which is before
another may take over.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from speccli.core.errors import SpecctlError
from speccli.core.kube.errors import ClusterError, Conflict
from speccli.core.kube.objects import create, replace
from speccli.core.kube.refs import LEASES

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

KIND = "Lease"
_JITTER = 1.2


@dataclass(frozen=True, slots=True)
class Times:
    """How long what may take, seconds."""

    duration_s: int = 15
    """Without a renewal after which others may take over."""
    renew_s: float = 10.0
    """Without a renewal after which the holder gives up."""
    retry_s: float = 2.0
    """Between two tries."""


def identity() -> str:
    """A name that no other process has, and that tells where this one runs."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Lease:
    """Tries to be the leader, and knows whether it is. One thread tries; any may ask."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        namespace: str,
        name: str,
        who: str,
        times: Times = Times(),  # noqa: B008 - frozen
        *,
        steady: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is asked before the first try.

        Args:
            connect: The cluster; called at every try.
            namespace: Where the Lease is.
            name: What it is called.
            who: `identity()`.
            times: Of the election.
            steady: A clock that nobody sets.
            clock: Unix seconds, for people who read the Lease.
        """
        self.who, self.times = who, times
        self.trouble: str | None = None
        """Why the last try came to nothing; None where it did not, or another leads."""
        self._connect = connect
        self._place, self._name = namespace, name
        self._steady, self._clock = steady, clock
        self._seen: dict[str, Any] | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._stop = threading.Event()

    @property
    def leads(self) -> bool:
        """Whether this process may act as the leader, now."""
        at = self._renewed_at
        return at is not None and self._steady() - at < self.times.renew_s

    @property
    def holder(self) -> str | None:
        """Who was last seen to hold it; None: nobody."""
        return _spec(self._seen).get("holderIdentity") or None

    @property
    def known(self) -> bool:
        """Whether somebody is known to lead: this process, or one whose time is not up."""
        return self.leads or (self.holder not in {None, self.who} and not self._over())

    def try_once(self) -> bool:
        """Take it or renew it, where one may; whether this process leads."""
        began = self._steady()
        try:
            held = self._fast() or self._slow()
            self.trouble = None
        except Conflict:
            held, self.trouble = False, None  # somebody was faster; the next try reads it
        except SpecctlError as error:
            held, self.trouble = False, error.message
        if held:
            self._renewed_at = began
        elif self.holder not in {None, self.who}:
            self._renewed_at = None
        return self.leads

    def _fast(self) -> bool:
        """Renew what was read last, without reading it again."""
        if self._seen is None or not self.leads or self.holder != self.who:
            return False
        with contextlib.suppress(ClusterError):
            self._put(self._seen, renews=True)
            return True
        return False

    def _slow(self) -> bool:
        cluster = self._connect()
        there = cluster.get(LEASES, KIND, self._name, self._place)
        if there is None:
            spec = self._mine(None)
            meta = {"name": self._name, "namespace": self._place}
            body = {"apiVersion": LEASES, "kind": KIND, "metadata": meta, "spec": spec}
            self._observe(create(cluster, body))
            return True
        if self._seen is None or _spec(there) != _spec(self._seen):
            self._observe(there)
        else:
            self._seen = there  # another resource version of the same words is no sign of life
        mine = self.holder == self.who
        if self.holder is not None and not mine and not self._over():
            return False
        self._put(there, renews=mine)
        return True

    def _over(self) -> bool:
        lasts = float(_spec(self._seen).get("leaseDurationSeconds") or self.times.duration_s)
        return self._steady() - self._seen_at >= lasts

    def _observe(self, there: dict[str, Any]) -> None:
        self._seen, self._seen_at = there, self._steady()

    def _put(self, there: Mapping[str, Any], *, renews: bool) -> None:
        spec = self._mine(_spec(there), renews=renews)
        self._observe(replace(self._connect(), {**there, "spec": spec}))

    def _mine(self, before: Mapping[str, Any] | None, *, renews: bool = False) -> dict[str, Any]:
        now = self._now()
        changes = int((before or {}).get("leaseTransitions") or 0)
        acquired = (before or {}).get("acquireTime") if renews else None
        return {
            "holderIdentity": self.who,
            "leaseDurationSeconds": self.times.duration_s,
            "acquireTime": acquired or now,
            "renewTime": now,
            "leaseTransitions": changes if renews or before is None else changes + 1,
        }

    def _now(self) -> str:
        told = datetime.fromtimestamp(self._clock(), UTC)
        return told.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def release(self) -> None:
        """Let another take over at once; where that fails, it takes the lease's duration."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        with contextlib.suppress(SpecctlError):
            cluster = self._connect()
            there = cluster.get(LEASES, KIND, self._name, self._place)
            if there is None or _spec(there).get("holderIdentity") != self.who:
                return
            now = self._now()
            spec = {
                "leaseDurationSeconds": 1,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": int(_spec(there).get("leaseTransitions") or 0),
            }
            self._seen = replace(cluster, {**there, "spec": spec})

    @contextlib.contextmanager
    def held_in_background(self) -> Iterator[None]:
        """Try until the end, by a thread: a move or a slow answer must not cost the lease."""
        thread = threading.Thread(target=self._run, name="specctl-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(self.times.renew_s)
            self.release()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                leads = self.try_once()
            except Exception as bug:  # noqa: BLE001 - the thread must not end in silence
                leads, self.trouble = False, f"a bug in specctl: {type(bug).__name__}: {bug}"
            pause = self.times.retry_s
            # Who waits spreads out, so that not all come at once when the leader is gone.
            self._stop.wait(pause if leads else pause * (1 + _JITTER * random.random()))  # noqa: S311


def _spec(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (value or {}).get("spec") or {}
