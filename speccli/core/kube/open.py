"""From `--deployment NAME` to a source: mistakes of typing at once, the rest when it is read."""

from __future__ import annotations

import os
import re

from speccli.core.errors import UsageError
from speccli.core.kube.client import Cluster
from speccli.core.kube.kubeconfig import choose, kubeconfig_files
from speccli.core.kube.source import PodSource

_ASKING_S = 5.0
"""What a login may take at least: credential plugins ask a cloud."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def open_pods(
    name: str,
    *,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    interval_s: float,
    deadline_s: float,
) -> PodSource:
    """The pods of a deployment as a source; nothing is asked of the cluster yet.

    Raises:
        UsageError: a name that is none, or a kubeconfig or context that cannot be used.
    """
    for option, value in (("--deployment", name), ("--namespace", namespace)):
        if value is not None and not _NAME.fullmatch(value):
            raise UsageError(
                f"{option} {value!r} is no name of Kubernetes'", hint="lower case, digits and -"
            )
    files = kubeconfig_files(kubeconfig, os.environ)
    if files:
        choose(files, context)
    asking_s = max(_ASKING_S, deadline_s)

    def connect() -> Cluster:
        return Cluster.connect(kubeconfig, context, namespace, asking_s)

    return PodSource(connect, name, interval_s=interval_s, deadline_s=deadline_s)
