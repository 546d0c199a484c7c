"""A pod that was bound to a node: from its first container to its deletion."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.kube import behaviour
from tests.support.kube.behaviour import Behaviour
from tests.support.kube.kubelet import probe
from tests.support.kube.kubelet.client import LOG, STRATEGIC, Client
from tests.support.kube.kubelet.container import Container, now

Object = dict[str, Any]
_BACK_OFF_S = (10.0, 20.0, 40.0, 80.0, 160.0, 300.0)


class Pod:
    """One pod; `run` is its life."""

    def __init__(self, client: Client, pod: Object, folder: Path, address: str, host: str) -> None:
        """`folder`: where the kubelet keeps logs and finds behaviours."""
        self.pod = pod
        self.address = address
        self._client = client
        self._folder = folder
        self._host = host
        meta = pod["metadata"]
        self.namespace, self.name, self.uid = meta["namespace"], meta["name"], meta["uid"]
        logs = folder / "logs" / f"{self.namespace}_{self.name}_{self.uid}"
        self.containers = [Container(spec, logs) for spec in pod["spec"]["containers"]]
        self.init = [Container(spec, logs) for spec in pod["spec"].get("initContainers", [])]
        self._started_at = now()
        # Probe periods, preStop sleeps and back-offs last this share, so that a test is short.
        self._pace = self._behaviour(self.containers[0]).pace
        self._leave = asyncio.Event()
        self._grace_s = 30.0
        self._events = 0
        self._phase = "Pending"

    # What the API server hears -----------------------------------------------------------------

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def _condition(self, kind: str, true: bool, reason: str = "") -> Object:
        # A patch merges: what no longer holds is taken away by null.
        why = reason if reason and not true else None
        return {"type": kind, "status": "True" if true else "False", "reason": why}

    async def report(self) -> None:
        """Write the pod's status."""
        ready = bool(self.containers) and all(c.ready for c in self.containers)
        why = "ContainersNotReady"
        initialized = all("terminated" in c.state for c in self.init)
        stamp = now()
        conditions = [
            self._condition("PodReadyToStartContainers", True),
            self._condition("Initialized", initialized, "ContainersNotInitialized"),
            self._condition("ContainersReady", ready, why),
            self._condition("Ready", ready, why),
        ]
        before = {c["type"]: c for c in self.pod.get("status", {}).get("conditions", [])}
        for condition in conditions:
            old = before.get(condition["type"], {})
            same = old.get("status") == condition["status"]
            condition["lastTransitionTime"] = (
                old.get("lastTransitionTime", stamp) if same else stamp
            )
        status = {
            "phase": self._phase,
            "conditions": conditions,
            "hostIP": self._host,
            "hostIPs": [{"ip": self._host}],
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._started_at,
            "containerStatuses": [c.status() for c in self.containers],
        }
        if self.init:
            status["initContainerStatuses"] = [c.status() for c in self.init]
        self.pod.setdefault("status", {})["conditions"] = conditions
        body = {"metadata": {"uid": self.uid}, "status": status}
        code, said = await self._client.ask("PATCH", f"{self.path}/status", body, STRATEGIC)
        if code not in (200, 404, 409):
            LOG.error("status of %s: %s", self.name, said.get("message"))

    async def tell(self, reason: str, message: str, kind: str = "Normal", of: str = "") -> None:
        """Write an event about the pod, or about its container `of`."""
        self._events += 1
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        if of:
            reference["fieldPath"] = f"spec.containers{{{of}}}"
        event = {
            "metadata": {"name": f"{self.name}.{self.uid[:8]}.{self._events}"},
            "involvedObject": reference,
            "reason": reason,
            "message": message,
            "type": kind,
            "count": 1,
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "source": {"component": "kubelet", "host": self.pod["spec"]["nodeName"]},
        }
        await self._client.ask("POST", f"/api/v1/namespaces/{self.namespace}/events", event)

    # Its life ----------------------------------------------------------------------------------

    def leave(self, pod: Object) -> None:
        """It is to be deleted."""
        self._grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        self._leave.set()

    async def run(self) -> None:
        """Start its containers and keep them until it is deleted; then take it away."""
        lives = asyncio.create_task(self._live())
        left = asyncio.create_task(self._leave.wait())
        await asyncio.wait((lives, left), return_when=asyncio.FIRST_COMPLETED)
        if lives.done():
            lives.result()  # a bug of this kubelet's ends up in its log
        await left
        await self._stop()
        lives.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await lives
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        await self._client.ask("DELETE", self.path, body)

    async def _live(self) -> None:
        for container in self.init:
            container.wait("PodInitializing")
        await self.report()
        for container in self.init:
            await self._start(container, Behaviour())
            await container.ended(Behaviour())
        await asyncio.gather(*(self._keep(container) for container in self.containers))

    def _behaviour(self, container: Container) -> Behaviour:
        labels = self.pod["metadata"].get("labels", {})
        return behaviour.read(self._folder, self.namespace, labels, container.text)

    async def _keep(self, container: Container) -> None:
        """Run a container as often as the restart policy wants."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        while True:
            await self._configured(container)
            does = await self._pulled(container)
            await self._start(container, does)
            self._phase = "Running"
            await self.report()
            async with self._probed(container):
                code = await container.ended(does)
            if self._leave.is_set() or policy == "Never" or (policy == "OnFailure" and code == 0):
                if all("terminated" in c.state for c in self.containers):
                    failed = any(c.state["terminated"]["exitCode"] for c in self.containers)
                    self._phase = "Failed" if failed else "Succeeded"
                await self.report()
                return
            await self.report()
            if container.is_engine:
                await self._back_off(container)
            else:
                await self._leave.wait()  # nothing was run, so nothing is run again
                return

    async def _back_off(self, container: Container) -> None:
        seconds = _BACK_OFF_S[min(container.restarts, len(_BACK_OFF_S) - 1)]
        pod = f"{self.name}_{self.namespace}({self.uid})"
        text = f"restarting failed container={container.name} pod={pod}"
        if container.restarts:
            container.wait_to_restart(f"back-off {seconds:g}s {text}")
            await self.report()
            text = f"Back-off restarting failed container {container.name} in pod {pod}"
            await self.tell("BackOff", text, "Warning", container.name)
            await asyncio.sleep(seconds * self._pace)
        else:
            container.last = container.state
        container.restarts += 1

    async def _configured(self, container: Container) -> None:
        """Wait until what its environment refers to is there."""
        wanted = []
        for variable in container.spec.get("env", []):
            source = variable.get("valueFrom", {})
            for key, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
                if key in source and not source[key].get("optional"):
                    wanted.append((plural, source[key]["name"], source[key]["key"]))
        for plural, name, key in wanted:
            while (said := await self._lacks(plural, name, key)) is not None:
                if container.state != {
                    "waiting": {"reason": "CreateContainerConfigError", "message": said}
                }:
                    container.wait("CreateContainerConfigError", said)
                    await self.report()
                    await self.tell("Failed", f"Error: {said}", "Warning", container.name)
                await asyncio.sleep(10 * self._pace)

    async def _lacks(self, plural: str, name: str, key: str) -> str | None:
        path = f"/api/v1/namespaces/{self.namespace}/{plural}/{name}"
        status, found = await self._client.ask("GET", path)
        kind = plural.removesuffix("s")
        if status != 200:
            return f'{kind} "{name}" not found'
        if key not in found.get("data", {}):
            kind = "Secret" if kind == "secret" else "ConfigMap"
            return f"couldn't find key {key} in {kind} {self.namespace}/{name}"
        return None

    async def _pulled(self, container: Container) -> Behaviour:
        """Pull its image, again and again where that fails."""
        image, name = container.spec.get("image", ""), container.name
        tries = 0
        while True:
            does = self._behaviour(container)
            if not tries or not does.image_error:
                await self.tell("Pulling", f'Pulling image "{image}"', of=name)
                await asyncio.sleep(does.pull_s)
            if not does.image_error:
                took = f"{does.pull_s * 1000:.0f}ms"
                await self.tell("Pulled", f'Successfully pulled image "{image}" in {took}', of=name)
                return does
            said = f'failed to pull image "{image}": {does.image_error}'
            if not tries:
                container.wait("ErrImagePull", does.image_error)
                await self.report()
                await self.tell("Failed", said[0].upper() + said[1:], "Warning", name)
                await self.tell("Failed", "Error: ErrImagePull", "Warning", name)
                await asyncio.sleep(10 * self._pace)
                container.wait(
                    "ImagePullBackOff",
                    f'Back-off pulling image "{image}": ErrImagePull: {does.image_error}',
                )
                await self.report()
                await self.tell("BackOff", f'Back-off pulling image "{image}"', of=name)
                await self.tell("Failed", "Error: ImagePullBackOff", "Warning", name)
            tries += 1
            await asyncio.sleep(10 * self._pace)

    async def _start(self, container: Container, does: Behaviour) -> None:
        await self.tell("Created", f"Created container: {container.name}", of=container.name)
        volumes = await self._volumes(container) if does.runs else None
        labels = self.pod["metadata"].get("labels", {})
        rules = (str(self._folder), self.namespace, labels, container.text)
        await container.start(self.address, does, volumes, rules)
        await self.tell("Started", f"Started container {container.name}", of=container.name)

    async def _volumes(self, container: Container) -> Path:
        """A folder with what the container mounts: files of ConfigMaps, and empty folders."""
        root = container.folder / f"{container.name}.root"
        volumes = {one["name"]: one for one in self.pod["spec"].get("volumes", [])}
        for mount in container.spec.get("volumeMounts", []):
            place = root / mount["mountPath"].lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
            source = volumes[mount["name"]].get("configMap")
            if source is None:
                continue
            path = f"/api/v1/namespaces/{self.namespace}/configmaps/{source['name']}"
            _status, found = await self._client.ask("GET", path)
            for name, text in found.get("data", {}).items():
                (place / name).write_text(text)
            for name, packed in found.get("binaryData", {}).items():
                (place / name).write_bytes(base64.b64decode(packed))
        return root

    # Probes ------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _probed(self, container: Container) -> AsyncIterator[None]:
        task = asyncio.create_task(self._probe(container))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _probe(self, container: Container) -> None:
        """First the startup probe alone, then readiness and liveness side by side."""
        spec = container.spec
        startup = spec.get("startupProbe")
        if startup is not None:
            async for passed, counts, why in probe.results(self.address, spec, startup, self._pace):
                if passed:
                    break
                await self._failed(container, "Startup", why, kills=counts)
        container.started = True
        tasks = [self._readiness(container)]
        if "livenessProbe" in spec:
            tasks.append(self._liveness(container))
        await asyncio.gather(*tasks)

    async def _readiness(self, container: Container) -> None:
        asked = container.spec.get("readinessProbe")
        if asked is None:
            container.ready = True
            await self.report()
            return
        async for passed, counts, why in probe.results(
            self.address, container.spec, asked, self._pace
        ):
            if not passed:
                await self._failed(container, "Readiness", why, kills=False)
            if counts and passed != container.ready:
                container.ready = passed
                await self.report()

    async def _liveness(self, container: Container) -> None:
        asked = container.spec["livenessProbe"]
        async for passed, counts, why in probe.results(
            self.address, container.spec, asked, self._pace
        ):
            if not passed:
                await self._failed(container, "Liveness", why, kills=counts)

    async def _failed(self, container: Container, which: str, why: str, *, kills: bool) -> None:
        await self.tell("Unhealthy", f"{which} probe failed: {why}", "Warning", container.name)
        if kills:
            text = f"Container {container.name} failed {which.lower()} probe, will be restarted"
            await self.tell("Killing", text, of=container.name)
            container.signal(signal.SIGKILL)

    # Its end -----------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Stop what runs: the preStop sleep, SIGTERM, and SIGKILL when the grace is over."""
        running = [c for c in self.containers if c.running]
        for container in running:
            await self.tell("Killing", f"Stopping container {container.name}", of=container.name)
        try:
            async with asyncio.timeout(self._grace_s):
                await asyncio.gather(*(self._stop_one(container) for container in running))
        except TimeoutError:
            for container in running:
                container.signal(signal.SIGKILL)
                if container.process is not None:
                    await container.process.wait()

    async def _stop_one(self, container: Container) -> None:
        hook = container.spec.get("lifecycle", {}).get("preStop", {})
        await asyncio.sleep(float(hook.get("sleep", {}).get("seconds", 0)) * self._pace)
        container.signal(signal.SIGTERM)
        if container.process is not None:
            await container.process.wait()
