"""What each way of not answering is called, and what to do about it."""

from __future__ import annotations

import errno
import ssl
from typing import Any

from speccli.core.errors import (
    DeadlineError,
    NotAuthorisedError,
    SourceError,
    UnreachableError,
)
from speccli.core.sources import tls

_CA = " (--ca FILE?)"
_REACH = "check the address; is a port-forward up?"
_WORDS = {
    errno.ECONNREFUSED: "connect refused",
    errno.ECONNRESET: "connection reset",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
}


def explain(error: BaseException, url: str, deadline_s: float) -> SourceError:
    """An error of the transport: there was no answer at all."""
    import requests
    import urllib3.exceptions as transport

    chain = tuple(tls.chain(error))
    certificate = next((e for e in chain if isinstance(e, ssl.SSLCertVerificationError)), None)
    if certificate is not None:
        why = tls.refusal(certificate)
        return UnreachableError(f"{url}: {why.removesuffix(_CA)}", hint=_certificate_hint(why))
    handshake = next((e for e in chain if isinstance(e, ssl.SSLError)), None)
    if handshake is not None:
        return UnreachableError(f"{url}: {tls.handshake(handshake)}", hint="check http or https")
    if any(isinstance(e, requests.exceptions.SSLError) for e in chain):
        return UnreachableError(f"TLS with {url} failed", hint="is it plain http?")
    cut = "RemoteDisconnected" in repr(error) or any(
        isinstance(e, OSError) and e.errno == errno.ECONNRESET for e in chain
    )
    if cut and url.startswith("http:") and tls.speaks_tls(url):
        return UnreachableError(f"{url}: {tls.SPEAKS_TLS}", hint="give the https:// address")
    if any(isinstance(e, transport.NameResolutionError) for e in chain):
        return UnreachableError(f"{url}: name not found", hint=_REACH)
    for each in chain:
        if isinstance(each, OSError) and each.errno in _WORDS:
            return UnreachableError(f"no answer from {url}: {_WORDS[each.errno]}", hint=_REACH)
    if any(isinstance(e, requests.exceptions.Timeout | transport.TimeoutError) for e in chain):
        connecting = any(isinstance(e, transport.ConnectTimeoutError) for e in chain)
        what = (
            "accepts no connection" if connecting else f"has not answered within {deadline_s:g} s"
        )
        return DeadlineError(f"{url} {what}", hint=_REACH if connecting else "try --deadline 30s")
    if any(isinstance(e, requests.exceptions.TooManyRedirects) for e in chain):
        return UnreachableError(f"{url} redirects in a circle", hint=_REACH)
    said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
    if "RemoteDisconnected" in repr(error):
        said = "connection closed without an answer"
    return UnreachableError(f"no answer from {url}: {said}", hint=_REACH)


def _certificate_hint(why: str) -> str:
    if "expired" in why:
        return "renew the certificate; until then, --insecure accepts any"
    if "another host" in why:
        return "use the name that the certificate is for"
    return "give the CA with --ca FILE"


def from_status(url: str, status: int, head: bytes, payload: Any) -> SourceError:
    """An answer that is none: its status, its first bytes, its JSON where it is JSON."""
    kind, said = "", ""
    if isinstance(payload, dict):
        kind, said = str(payload.get("errorType", "")), str(payload.get("error", ""))[:200]
    if status in {401, 403}:
        return NotAuthorisedError(
            f"{url} answers {status}: other credentials are wanted",
            hint="give --token, --token-file or --cert",
        )
    if kind == "timeout" or "query timed out" in said:
        return DeadlineError(
            f"{url} gave up on a query: {said}", hint="narrow the pool with --selector"
        )
    if said:
        return SourceError(
            f"{url} refuses a query (HTTP {status}): {said}",
            hint="check --selector"
            if kind == "bad_data"
            else "narrow the pool with --selector, or shorten --window",
        )
    html = head.lstrip()[:1] == b"<"
    if status == 200:
        what = "an HTML page" if html else "something other than Prometheus's JSON"
        return SourceError(
            f"{url} answers with {what} (a login page, a proxy?)",
            hint="give --token, or the URL behind the login",
        )
    if status == 404:
        return SourceError(
            f"{url} has no Prometheus API (HTTP 404)",
            hint="the URL ends where /api/v1 begins: for Mimir in /prometheus",
        )
    if status == 429:
        return SourceError(
            f"{url} answers 429: too many queries", hint="ask less often: --interval"
        )
    text = "" if html else head.decode("utf-8", "replace").split("\n")[0].strip()[:80]
    return UnreachableError(
        f"{url} answers {status}{f': {text}' if text else ''}", hint="is Prometheus healthy?"
    )
