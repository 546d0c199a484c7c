"""Credential plugins (`exec` in a kubeconfig): run with a deadline, and heard when they fail.

The Kubernetes client logs a plugin's failure and goes on as nobody; here it is an error with the
plugin's own words. Protocol: client.authentication.k8s.io/v1 (and v1beta1), ExecCredential.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speccli.core.kube.errors import CredentialsError
from speccli.core.sources.redact import redact

_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_WORDS = 300
"""Characters of a plugin's own words that are repeated."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a plugin gave."""

    token: str | None
    certificate: str | None
    """PEM."""
    key: str | None
    """PEM."""
    expires: datetime | None


def run_plugin(
    spec: Mapping[str, Any],
    *,
    folder: Path,
    cluster: Mapping[str, Any],
    environment: Mapping[str, str],
    deadline_s: float,
) -> Credential:
    """Ask a plugin for credentials.

    Args:
        spec: The `exec` entry.
        folder: That of the kubeconfig: a command with a slash is relative to it.
        cluster: The cluster entry, told to plugins that want it.
        environment: This process's; the entry's own variables lie over it.
        deadline_s: After which it is ended, with everything it started.

    Raises:
        CredentialsError: it failed, in its own words.
    """
    command, name = _command(spec, folder)
    version = spec.get("apiVersion")
    if version not in _VERSIONS:
        raise CredentialsError(
            f"credential plugin {name}: apiVersion {version!r} is none of {', '.join(_VERSIONS)}",
            hint="write the kubeconfig anew with the cloud's own command",
        )
    if spec.get("interactiveMode") == "Always":
        raise CredentialsError(
            f"credential plugin {name} wants to ask you something (interactiveMode: Always)",
            hint="choose a user that needs no typing",
        )
    env = dict(environment) | _variables(spec, name)
    env["KUBERNETES_EXEC_INFO"] = json.dumps(_info(spec, cluster))
    status, out, words = _run(command, name, env, folder, deadline_s, spec.get("installHint"))
    if status != 0:
        raise _failed(name, f"failed with {status}", words)
    return _credential(out, str(version), name, words)


def _command(spec: Mapping[str, Any], folder: Path) -> tuple[list[str], str]:
    program = spec.get("command")
    if not isinstance(program, str) or not program:
        raise CredentialsError("the kubeconfig's exec entry has no command")
    arguments = spec.get("args") or []
    if not isinstance(arguments, list):
        raise CredentialsError(f"credential plugin {program}: args must be a list")
    if "/" in program:
        program = str(folder / program)
    return [program, *map(str, arguments)], Path(program).name


def _variables(spec: Mapping[str, Any], name: str) -> dict[str, str]:
    listed = spec.get("env") or []
    try:
        return {str(each["name"]): str(each["value"]) for each in listed}
    except (KeyError, TypeError) as error:
        raise CredentialsError(
            f"credential plugin {name}: env must be a list of name and value"
        ) from error


def _info(spec: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"interactive": False}
    if spec.get("provideClusterInfo"):
        told["cluster"] = _cluster_info(cluster)
    return {"apiVersion": spec["apiVersion"], "kind": "ExecCredential", "spec": told}


def _cluster_info(cluster: Mapping[str, Any]) -> dict[str, Any]:
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    told = {name: cluster[name] for name in names if name in cluster}
    told |= {k: v for k, v in cluster.items() if k == "certificate-authority-data"}
    if "certificate-authority" in cluster and "certificate-authority-data" not in told:
        import base64

        with contextlib.suppress(OSError):
            pem = Path(str(cluster["certificate-authority"])).read_bytes()
            told["certificate-authority-data"] = base64.b64encode(pem).decode()
    for each in cluster.get("extensions") or []:
        if isinstance(each, dict) and each.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = each.get("extension")
    return told


def _run(
    command: list[str],
    name: str,
    env: Mapping[str, str],
    folder: Path,
    deadline_s: float,
    advice: Any,
) -> tuple[int, str, str]:
    """Exit status, standard output, and what it said on standard error."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=folder,
            start_new_session=True,  # so that all it starts can be ended with it
        )
    except FileNotFoundError as error:
        hint = " ".join(str(advice).split())[:_WORDS] if advice else "install it, or put it in PATH"
        raise CredentialsError(f"credential plugin {name} is not there", hint=hint) from error
    except OSError as error:
        raise CredentialsError(f"credential plugin {name}: {error.strerror}") from error
    try:
        out, said = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        said = b""
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, said = process.communicate(timeout=1.0)
        raise _failed(name, f"gave nothing within {deadline_s:g} s", _words(said)) from None
    except BaseException:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out.decode("utf-8", "replace"), _words(said)


def _credential(out: str, version: str, name: str, words: str) -> Credential:
    try:
        told = json.loads(out)
    except ValueError:
        shown = _words(out.encode()) or words
        raise _failed(name, "printed no ExecCredential", shown) from None
    if not isinstance(told, dict) or told.get("kind") != "ExecCredential":
        raise _failed(name, "printed no ExecCredential", words)
    if told.get("apiVersion") != version:
        raise _failed(name, f"speaks {told.get('apiVersion')}, the kubeconfig says {version}", "")
    status = told.get("status")
    if not isinstance(status, dict):
        raise _failed(name, "gave no status", words)
    token = status.get("token")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not token and not (certificate and key):
        raise _failed(name, "gave neither a token nor a certificate with its key", words)
    return Credential(token, certificate, key, _time(status.get("expirationTimestamp"), name))


def _time(text: Any, name: str) -> datetime | None:
    if not text:
        return None
    try:
        told = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        raise _failed(name, f"gave {text!r} as a time", "") from None
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def _failed(name: str, what: str, words: str) -> CredentialsError:
    said = f": {words}" if words else ""
    return CredentialsError(
        f"credential plugin {name} {what}{said}",
        hint="log in again, as its words say; nothing was sent to the cluster",
    )


def _words(said: bytes | None) -> str:
    """The last lines of what it said, on one line: its reason stands at the end."""
    text = " ".join(redact((said or b"").decode("utf-8", "replace")).split())
    return text if len(text) <= _WORDS else f"…{text[-_WORDS:]}"
