"""The kernel checks in a cluster: as a Job of their own on a node, or inside a pod that runs."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccli.core import kernels_job
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.kernels import NO_DEVICE, PACKAGE, USAGE, progress_of
from speccli.core.kube.errors import Asked, ClusterError, Denied, NotThere, TimedOut

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster
    from speccli.core.kube.crash import Crash

Progress = Callable[[str], None]
POLL_S = 1.0
_QUIET_S = 60
"""After so long without a line the log is asked for again: a connection may have died silently."""
_HOPELESS = frozenset({"ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"})
"""Why a container waits that will not start by itself."""

BOOT = """
import io, os, signal, subprocess, sys, tarfile, tempfile, threading
data = sys.stdin.buffer.read(int(sys.argv[1]))
places = (os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm")
room = [d for d in places if d and os.access(d, os.W_OK)]
with tempfile.TemporaryDirectory(prefix="specctl-kernels-", dir=room[0] if room else None) as place:
    archive = tarfile.open(fileobj=io.BytesIO(data))
    archive.extractall(place, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    caches = {"XDG_CACHE_HOME": place, "TRITON_CACHE_DIR": place + "/triton", "TMPDIR": place}
    run = subprocess.Popen(
        [sys.executable, "-m", "kernels_check", *sys.argv[2:]], cwd=place,
        env={**os.environ, **caches}, stdin=subprocess.DEVNULL, start_new_session=True)
    def watch():
        sys.stdin.buffer.read(1)
        os.killpg(run.pid, signal.SIGTERM)
    threading.Thread(target=watch, daemon=True).start()
    code = run.wait()
sys.stdout.flush()
os._exit(code if code >= 0 else 128 - code)
"""
"""What a pod's own Python runs: unpack from stdin, run, and end the checks when stdin ends."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a deployment runs, for a Job that shall be like it."""

    image: str
    tolerations: tuple[Mapping[str, Any], ...] = ()
    selector: Mapping[str, str] | None = None
    pull_secrets: tuple[str, ...] = ()


def target_of(cluster: Cluster, name: str) -> Target:
    """Image and placement of a deployment's engines.

    Raises:
        ClusterError: there is none of that name.
    """
    from speccli.core.kube.discover import engine_of, find

    found = find(cluster, name)
    pods = cluster.list("v1", "Pod", found.namespace, labels=found.selector)
    owner = cluster.get("apps/v1", "Deployment", name, found.namespace)
    spec = owner["spec"]["template"]["spec"] if owner else None
    if spec is None:
        if not pods:
            raise ClusterError(f"deployment {name} has no pod to take the image from")
        spec = pods[0]["spec"]
    container, _ = engine_of({"spec": spec})
    image = next(c["image"] for c in spec["containers"] if c["name"] == container)
    return Target(
        image,
        tuple(spec.get("tolerations") or ()),
        spec.get("nodeSelector"),
        tuple(each["name"] for each in spec.get("imagePullSecrets") or ()),
    )


def run_job(
    cluster: Cluster, asked: kernels_job.JobRequest, package: Path, progress: Progress
) -> dict[str, Any]:
    """Apply the Job, follow its log, read its result and take it away again.

    Raises:
        ClusterError: it was refused, found no node, or did not end in time.
        SpecctlError: it ended without a result.
    """
    request = replace(asked, name=f"{kernels_job.NAME}-{secrets.token_hex(3)}")
    source, job = kernels_job.objects(request, package)
    refs = [("batch/v1", "Job"), ("v1", "ConfigMap")]
    try:
        cluster.apply(source)
        made = cluster.apply(job)
        # Should nobody come back to clean up, the package goes when the Job does.
        owner = {name: made[name] for name in ("apiVersion", "kind")} | {
            name: made["metadata"][name] for name in ("name", "uid")
        }
        owned = {**source["metadata"], "ownerReferences": [owner]}
        cluster.apply({**source, "metadata": owned})
        progress(f"job {request.namespace}/{request.name} is applied")
        return _Following(cluster, request, progress).result()
    finally:
        for api_version, kind in refs:
            with suppress(SpecctlError):
                cluster.delete(api_version, kind, request.name, request.namespace)


class _Following:
    """One Job, from its pod's first state to its result."""

    def __init__(
        self, cluster: Cluster, request: kernels_job.JobRequest, progress: Progress
    ) -> None:
        self._cluster, self._request, self._progress = cluster, request, progress
        self._ends = time.monotonic() + request.deadline_s
        self._told = ""
        self._lines: list[str] = []
        self._where = f"job {request.name} in namespace {request.namespace}"

    def result(self) -> dict[str, Any]:
        """Wait for its pod, read its log to the end, and put the result together."""
        pod = self._started()
        name = pod["metadata"]["name"]
        while (ended := self._ended(name)) is None:
            self._read(name)
        self._read(name)  # what came between the last line and the end
        code = int(ended["state"]["terminated"]["exitCode"])
        document = assembled(self._lines, code, self._where)
        final = self._cluster.get("v1", "Pod", name, self._request.namespace) or pod
        document["environment"] |= {
            "image": self._request.image,
            "image_digest": digest_of(str(ended.get("imageID") or "")),
            "node": final["spec"].get("nodeName"),
        }
        return document

    def _pod(self) -> dict[str, Any] | None:
        labels = {"batch.kubernetes.io/job-name": self._request.name}
        pods = self._cluster.list("v1", "Pod", self._request.namespace, labels=labels)
        return pods[0] if pods else None

    def _started(self) -> dict[str, Any]:
        """The pod, once its container has been started."""
        why = "no pod was made for it"
        while time.monotonic() < self._ends:
            pod = self._pod()
            if pod is None:
                self._refused()
            else:
                state = _status(pod).get("state") or {}
                if "running" in state or "terminated" in state:
                    return pod
                found = self._look(pod)
                why = found.cause if found else "its pod did not start"
                waits = (state.get("waiting") or {}).get("reason")
                if found and waits in _HOPELESS:
                    raise ClusterError(f"{self._where}: {why}", hint=found.fix)
                self._tell(f"waiting: {why}")
            time.sleep(POLL_S)
        raise TimedOut(f"{self._where}: not started in time: {why}", hint="raise --deadline")

    def _refused(self) -> None:
        """A Job whose pod is not let in (a quota, a policy) says so in its events."""
        for event in self._cluster.events(self._request.namespace, self._request.name):
            if event.get("reason") == "FailedCreate":
                raise ClusterError(f"{self._where}: {event.get('message')}")

    def _look(self, pod: Mapping[str, Any]) -> Crash | None:
        from speccli.core.kube.crash import classify

        try:
            events = self._cluster.events(self._request.namespace, pod["metadata"]["name"])
        except Denied:
            events = []
        return classify(pod, events, "")

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._progress(text)

    def _ended(self, name: str) -> Mapping[str, Any] | None:
        """The container's status once it has ended."""
        pod = self._cluster.get("v1", "Pod", name, self._request.namespace)
        if pod is None:
            raise NotThere(f"{self._where}: its pod was deleted; was the deadline over?")
        status = _status(pod)
        if "terminated" in (status.get("state") or {}):
            return status
        if (pod.get("status") or {}).get("phase") == "Failed":
            why = (pod["status"].get("message") or pod["status"].get("reason")) or "it failed"
            raise ClusterError(f"{self._where}: {why}")
        if time.monotonic() > self._ends + _QUIET_S:
            raise TimedOut(f"{self._where}: not done in time", hint="raise --deadline")
        return None

    def _read(self, name: str) -> None:
        """The log from its beginning, what was read before left out, as long as it goes on."""
        for number, line in enumerate(self._log(name)):
            if number < len(self._lines):
                continue
            self._lines.append(line)
            if text := told_by(line):
                self._progress(text)

    def _log(self, name: str) -> Iterator[str]:
        path = f"/api/v1/namespaces/{self._request.namespace}/pods/{name}/log"
        query = {"container": kernels_job.CONTAINER, "follow": "true"}
        asked = Asked("read", f"the log of pod {name}", self._request.namespace)
        for line in self._cluster.lines(path, asked, query=query, idle_s=_QUIET_S):
            yield line.decode("utf-8", "replace")


def run_in(
    cluster: Cluster,
    pod: str,
    arguments: tuple[str, ...],
    package: Path,
    progress: Progress,
    *,
    container: str | None,
    deadline_s: float,
) -> dict[str, Any]:
    """Run the checks in a pod that runs, with its Python and on its GPU.

    Raises:
        ClusterError: the pod is not there, or did not let it be done.
        SpecctlError: it ended without a result.
    """
    from speccli.core.kube.discover import engine_of
    from speccli.core.kube.execute import execute

    found = cluster.get("v1", "Pod", pod, cluster.namespace)
    if found is None:
        raise ClusterError(
            f"no pod {pod} in namespace {cluster.namespace} of {cluster.context}",
            hint="give its namespace: -n NS",
        )
    name = container or engine_of(found)[0]
    archive = kernels_job.pack(package)
    last = ""

    def said(line: str) -> None:
        nonlocal last
        last = line.strip() or last
        if (text := progress_of(line)) is not None:
            progress(text)

    command = ["python3", "-c", BOOT, str(len(archive)), "-o", "json", *arguments]
    ended = execute(
        cluster, pod, command, namespace=cluster.namespace, container=name, fed=archive,
        said=said, deadline_s=deadline_s,
    )  # fmt: skip
    where = f"pod {pod} in namespace {cluster.namespace}"
    with suppress(ValueError):
        document: dict[str, Any] = json.loads(ended.output)
        state = next(s for s in found["status"]["containerStatuses"] if s["name"] == name)
        document["environment"] |= {
            "image": next(c["image"] for c in found["spec"]["containers"] if c["name"] == name),
            "image_digest": digest_of(str(state.get("imageID") or "")),
            "node": found["spec"].get("nodeName"),
        }
        return document
    raise without_result(last, ended.exit_code, where)


def assembled(lines: list[str], code: int, where: str) -> dict[str, Any]:
    """The run's JSON from the lines of `-o lines`.

    Raises:
        SpecctlError: the end of them is missing, or some of the checks.
    """
    checks, document = [], None
    for line in lines:
        said = _json(line)
        if said is not None and "schema" in said:
            document = said
        elif said is not None and "status" in said:
            checks.append(said)
    if document is None:
        raise without_result(next((x for x in reversed(lines) if x.strip()), ""), code, where)
    if document["checks"] != len(checks):
        raise SpecctlError(
            f"{where}: its log has {len(checks)} of {document['checks']} checks",
            hint="the node cuts logs short; run fewer checks with --only",
        )
    return {**document, "checks": checks}


def told_by(line: str) -> str | None:
    """What a line of the log is worth saying."""
    said = _json(line)
    if said is None or "status" not in said or "name" not in said:
        return progress_of(line)
    return f"{said['status']:<8} {said['name']} {said['seconds']:6.1f} s  {said['evidence']}"


def without_result(last: str, code: int, where: str) -> SpecctlError:
    """Why there is none."""
    last = last.removeprefix(f"{PACKAGE}: ").strip()
    if NO_DEVICE in last:
        return SpecctlError(f"{NO_DEVICE} in {where}")
    if code == USAGE:
        return UsageError(last.removeprefix("error: "))
    return SpecctlError(
        f"{where} ended without a result (exit {code}): {last or 'it said nothing'}"
    )


def digest_of(image_id: str) -> str | None:
    """`sha256:…` of an image as a node names it; None where it tells none."""
    _, found, digest = image_id.rpartition("sha256:")
    return f"sha256:{digest}" if found else None


def _json(line: str) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((s for s in states if s.get("name") == kernels_job.CONTAINER), {})
