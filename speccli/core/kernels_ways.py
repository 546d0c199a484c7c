"""The ways to run the kernel checks: on this machine, as a Job on a node, or inside a pod."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speccli.core import kernels, kernels_gate, kernels_job
from speccli.core.errors import SpecctlError, UsageError

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

_LEAST_CALL_S = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run, and where."""

    local: bool
    job: bool
    pod: str | None
    """Run inside it."""
    wanted: kernels.Wanted
    image: str | None = None
    """Of the Job."""
    deployment: str | None = None
    """Whose image and placement the Job takes."""
    node: str | None = None
    container: str | None = None
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    def agree(self) -> None:
        """See that the options go together.

        Raises:
            UsageError: they do not.
        """
        ways = [name for name, on in (
            ("--local", self.local), ("--job", self.job), ("--exec", self.pod is not None)
        ) if on]  # fmt: skip
        if len(ways) > 1:
            raise UsageError(f"{' and '.join(ways)} exclude each other")
        if self.job and (self.image is None) == (self.deployment is None):
            raise UsageError(
                "--job needs the image to check: --image IMAGE, or --deployment NAME for its image"
            )
        needs = (
            ("--image", self.image, self.job, "--job"),
            ("--deployment", self.deployment, self.job, "--job"),
            ("--node", self.node, self.job, "--job"),
            ("--container", self.container, self.pod is not None, "--exec POD"),
            *((name, value, self.job or self.pod is not None, "--job or --exec POD") for name, value
              in (("--namespace", self.namespace), ("--context", self.context),
                  ("--kubeconfig", self.kubeconfig))),
        )  # fmt: skip
        for name, value, fits, way in needs:
            if value is not None and not fits:
                raise UsageError(f"{name} goes with {way}")
        if (self.job or self.pod) and self.wanted.python != sys.executable:
            raise UsageError("--python goes with --local: in a pod it is the image's python3")
        if (self.job or self.pod) and "--svg" in self.wanted.arguments:
            raise UsageError("--svg goes with --local: the file would be written in the pod")


Say = Callable[[str], None]


def check(asked: Asked, progress: Say, warn: Say) -> dict[str, Any]:
    """Run the checks, remember the result, and return its JSON.

    Raises:
        UsageError: options that do not go together.
        SpecctlError: there is no result.
    """
    asked.agree()
    if not (asked.job or asked.pod):
        document = kernels.check(asked.wanted, progress)
        _remember(lambda: _keep_here(document), warn)
        return document
    cluster = _connected(asked)
    document = _in_cluster(cluster, asked, progress)
    kept = kernels_gate.kept_of(document)
    _remember(lambda: kernels_gate.keep_in_cluster(cluster, kept), warn)
    return document


def _connected(asked: Asked) -> Cluster:
    from speccli.core.kube.client import Cluster

    return Cluster.connect(asked.kubeconfig, asked.context, asked.namespace, _LEAST_CALL_S)


def _in_cluster(cluster: Cluster, asked: Asked, progress: Say) -> dict[str, Any]:
    from speccli.core import kernels_cluster

    wanted, package = asked.wanted, kernels.package()
    if asked.pod is not None:
        return kernels_cluster.run_in(
            cluster, asked.pod, ("--shared", *wanted.arguments), package, progress,
            container=asked.container, deadline_s=wanted.deadline_s,
        )  # fmt: skip
    target = (
        kernels_cluster.target_of(cluster, asked.deployment)
        if asked.deployment is not None
        else kernels_cluster.Target(str(asked.image))
    )
    request = kernels_job.JobRequest(
        target.image, cluster.namespace, asked.node, wanted.arguments, int(wanted.deadline_s),
        tolerations=target.tolerations, selector=target.selector,
        pull_secrets=target.pull_secrets,
    )  # fmt: skip
    return kernels_cluster.run_job(cluster, request, package, progress)


def _keep_here(document: dict[str, Any]) -> None:
    from speccli.core.state import state_folder

    kept = kernels_gate.kept_of(document)
    if kept.gpu_uuid:
        kernels_gate.keep_here(state_folder(None, os.environ), kept)


def _remember(keep: Callable[[], object], warn: Say) -> None:
    """A result is worth showing even where it cannot be kept."""
    try:
        keep()
    except SpecctlError as error:
        warn(f"the result is not remembered: {error.message}")
