"""Why two ends do not understand one another: TLS on one side only, a certificate's end."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

from speccli.core.sources.certificate import expiry

SPEAKS_TLS = "it speaks TLS? use https://"
NOT_ACCEPTED = "certificate not accepted"
SPEAKS_HTTP = "it speaks plain http? use http://"
_PATIENCE_S = 2.0
_NOT_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}
    | {"HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE", "BAD_RECORD_TYPE"}
)
"""What OpenSSL calls an answer that is no TLS."""
_EXPIRED, _WRONG_NAMES = 10, frozenset({62, 64})
"""X509_V_ERR_CERT_HAS_EXPIRED; _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH."""


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything it wraps, in whatever way."""
    seen: set[int] = set()
    queue: list[BaseException] = [error]
    while queue:
        each = queue.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        inner = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args)
        queue += [e for e in inner if isinstance(e, BaseException)]


def refusal(error: ssl.SSLCertVerificationError) -> str:
    """Why a certificate is not accepted."""
    if error.verify_code == _EXPIRED:
        return "certificate has expired"
    said = error.verify_message or error.reason or "no reason given"
    if error.verify_code in _WRONG_NAMES:
        return f"certificate is of another host: {said}"
    return f"{NOT_ACCEPTED}: {said} (--ca FILE?)"


def handshake(error: ssl.SSLError) -> str:
    """Why there is no TLS with a server, whatever its certificate."""
    reason: str | None = getattr(error, "reason", None)  # a client's own subclass may have none
    if reason in _NOT_TLS:
        return f"TLS failed: {SPEAKS_HTTP}"
    why = (reason or "no reason given").replace("_", " ").lower()
    return f"TLS failed: {why}"


def speaks_tls(url: str) -> bool:
    """Whether whoever listens there answers in TLS."""
    return _certificate(url) is not None


def is_expired(url: str) -> bool:
    """Whether the certificate shown there is over: a check stops at the first fault it finds."""
    ends = expiry(_certificate(url))
    return ends is not None and ends < datetime.now(UTC)


def _certificate(url: str) -> bytes | None:
    """The certificate shown there (DER), whatever it is worth; None where there is no TLS."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((host, port), timeout=_PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""
    except (OSError, ValueError):
        return None
