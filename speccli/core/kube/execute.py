"""A program in a pod that runs: what it is fed, what it says, and how it ended.

Over the API server's `exec`, by WebSocket with the protocol `v4.channel.k8s.io`: every message
begins with the number of its stream.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from speccli.core.kube.errors import (
    Asked,
    ClusterError,
    TimedOut,
    Unreachable,
    refusal,
    status_of,
)

if TYPE_CHECKING:
    from websocket import WebSocket

    from speccli.core.kube.client import Cluster
    from speccli.core.kube.credentials import Credentials

_PROTOCOL = "v4.channel.k8s.io"
_IN, _OUT, _ERR, _END = 0, 1, 2, 3
_PIECE = 32 << 10
_IDLE_S = 1.0
"""How long a read waits before the deadline is looked at."""
_MOST = 64 << 20
"""Bytes of output that are kept."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended."""

    exit_code: int
    output: bytes
    """What it wrote to stdout."""


def execute(
    cluster: Cluster,
    pod: str,
    command: Sequence[str],
    *,
    namespace: str,
    container: str,
    fed: bytes = b"",
    said: Callable[[str], None] = lambda line: None,
    deadline_s: float,
) -> Ended:
    """Run it; the connection stays open until it has ended, so that it can see when we are gone.

    Args:
        cluster: Where.
        pod: Its name.
        command: The program and its arguments.
        namespace: The pod's.
        container: Which of its containers.
        fed: What comes in on stdin. It has no end: the program must know how much it is.
        said: Gets each line of stderr.
        deadline_s: For all of it.

    Raises:
        ClusterError: it was refused, cut off, or not done in time.
    """
    asked = Asked("run a program in", f"pod {pod}", namespace)
    words = [
        *(("command", word) for word in command),
        ("container", container),
        ("stdin", "true"),
        ("stdout", "true"),
        ("stderr", "true"),
    ]
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/exec"
    ends = time.monotonic() + deadline_s
    socket = _opened(cluster, f"{path}?{urlencode(words)}", asked)
    try:
        for at in range(0, len(fed), _PIECE):
            socket.send_binary(bytes([_IN]) + fed[at : at + _PIECE])
        return _listened(socket, asked, said, ends, deadline_s)
    except OSError as error:
        raise Unreachable(f"cannot {asked}: the connection was cut ({error})") from error
    finally:
        socket.close()


def _opened(cluster: Cluster, target: str, asked: Asked) -> WebSocket:
    """The connection; once more with newer credentials where they are not accepted."""
    from websocket import WebSocketBadStatusException, WebSocketException

    used = cluster.credentials()
    for last in (False, True):
        try:
            return _connected(used, target, cluster.deadline_s)
        except WebSocketBadStatusException as error:
            if error.status_code == 401 and not last:
                used = cluster.renew(used)
                continue
            body = error.resp_body or b""
            raise refusal(error.status_code, body, asked) from error
        except (WebSocketException, OSError) as error:
            raise Unreachable(
                f"cannot {asked}: no connection to {used.server}: {error}",
                hint="a proxy in between must let WebSockets through",
            ) from error
    raise AssertionError


def _connected(used: Credentials, target: str, timeout_s: float) -> WebSocket:
    from websocket import create_connection

    configuration = used.configuration
    headers = [f"Authorization: {used.authorization}"] if used.authorization else []
    options: dict[str, Any] = {}
    if used.tls is not None:
        options["sslopt"] = {"context": used.tls}
        if configuration.tls_server_name:
            options["sslopt"]["server_hostname"] = configuration.tls_server_name
    if configuration.proxy:
        proxy = urlsplit(configuration.proxy)
        options |= {
            "http_proxy_host": proxy.hostname,
            "http_proxy_port": proxy.port,
            "proxy_type": proxy.scheme,
        }
        if proxy.username:
            options["http_proxy_auth"] = (proxy.username, proxy.password or "")
    return create_connection(
        "ws" + used.server.rstrip("/").removeprefix("http") + target,
        timeout=timeout_s,
        header=headers,
        subprotocols=[_PROTOCOL],
        **options,
    )


def _listened(
    socket: WebSocket,
    asked: Asked,
    said: Callable[[str], None],
    ends: float,
    deadline_s: float,
) -> Ended:
    from websocket import WebSocketConnectionClosedException, WebSocketTimeoutException

    socket.settimeout(_IDLE_S)
    output, begun = bytearray(), b""
    while True:
        if time.monotonic() > ends:
            raise TimedOut(
                f"cannot {asked}: not done within {deadline_s:g} s", hint="raise --deadline"
            )
        try:
            message = socket.recv()
        except WebSocketTimeoutException:
            continue
        except WebSocketConnectionClosedException as error:
            raise Unreachable(
                f"cannot {asked}: the connection was closed before its end"
            ) from error
        if not message:
            if not socket.connected:
                raise Unreachable(f"cannot {asked}: the connection was closed before its end")
            continue
        data = message.encode() if isinstance(message, str) else message
        stream, data = data[0], data[1:]
        if stream == _OUT:
            output += data
            if len(output) > _MOST:
                raise ClusterError(f"cannot {asked}: it wrote more than {_MOST >> 20} MiB")
        elif stream == _ERR:
            *whole, begun = (begun + data).split(b"\n")
            for line in whole:
                said(line.decode("utf-8", "replace"))
        elif stream == _END and data:
            if begun:
                said(begun.decode("utf-8", "replace"))
            return Ended(_exit_code(data, asked), bytes(output))


def _exit_code(data: bytes, asked: Asked) -> int:
    """What the last message tells: 0, the program's own code, or that it could not be run."""
    told = status_of(data) or json.loads(data)
    if told.get("status") == "Success":
        return 0
    for cause in (told.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    words = " ".join(str(told.get("message") or "no reason given").split())
    raise ClusterError(f"cannot {asked}: {words}")
