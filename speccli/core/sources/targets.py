"""What an `--endpoint` means."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from speccli.core.errors import UsageError
from speccli.core.sources.redact import redact_url


@dataclass(frozen=True, slots=True)
class Target:
    """One server to scrape."""

    name: str
    """Its URL without credentials, query or `/metrics`: how it is shown, recorded and keyed."""
    metrics_url: str
    user: str | None = None
    password: str | None = None

    @property
    def base_url(self) -> str:
        """What its other paths are appended to."""
        return self.metrics_url.partition("?")[0].removesuffix("/metrics")

    @property
    def host(self) -> str:
        """Host name or address."""
        return urlsplit(self.name).hostname or ""

    @property
    def port(self) -> int:
        """TCP port."""
        parts = urlsplit(self.name)
        return parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True, slots=True)
class Address:
    """An http(s) URL as somebody typed it."""

    scheme: str
    at: str
    """`host` or `host:port`, without credentials."""
    path: str
    query: str
    user: str | None = None
    """None where the URL brings no credentials."""
    password: str | None = None


def parse_address(text: str, *, what: str, hint: str) -> Address:
    """`http://host:8000/path` or `host:8000`.

    Raises:
        UsageError: not an address; it names `what` and never shows what may be a credential.
    """
    given = text.strip()
    url = given if "://" in given else f"http://{given}"
    shown = repr(redact_url(given))
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # Python's words for it repeat what stands there, which may be part of a password.
        why = "its port is not one" if "port" in str(error).lower() else "its host cannot be read"
        raise UsageError(f"{what} {shown} is not a URL: {why}", hint=hint) from error
    if parts.scheme not in {"http", "https"}:
        raise UsageError(f"{what} {shown}: scheme {parts.scheme!r} is not http(s)", hint=hint)
    if not host or port == 0 or any(c.isspace() or not c.isprintable() for c in given):
        raise UsageError(f"{what} {shown} names no host and port", hint=hint)
    address = f"[{host}]" if ":" in host else host
    lets_in = bool(parts.username or parts.password)
    return Address(
        parts.scheme,
        address if port is None else f"{address}:{port}",
        parts.path,
        parts.query,
        unquote(parts.username or "") if lets_in else None,
        unquote(parts.password or "") if lets_in else None,
    )


def parse_target(text: str) -> Target:
    """`http://host:8000`, `host:8000`, or the address of the metrics page itself.

    Raises:
        UsageError: not an address.
    """
    hint = "an endpoint looks like http://10.0.0.7:8000"
    url = parse_address(text, what="endpoint", hint=hint)
    path = url.path.rstrip("/").removesuffix("/metrics").rstrip("/")
    name = f"{url.scheme}://{url.at}{path}"
    query = f"?{url.query}" if url.query else ""
    return Target(name, f"{name}/metrics{query}", url.user, url.password)


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def _server(target: Target) -> str:
    """What two names of one server have in common: this machine has several."""
    if target.host not in _LOOPBACK:
        return target.name
    parts = urlsplit(target.name)
    return f"{parts.scheme}://localhost:{target.port}{parts.path}"


def parse_targets(texts: list[str]) -> list[Target]:
    """Each server once, in the order given, by the first name it is given.

    Raises:
        UsageError: one of them is not an address, or two are one server's by all but the query.
    """
    found: dict[str, Target] = {}
    for target in map(parse_target, texts):
        before = found.setdefault(_server(target), target)
        if before.name == target.name and before.metrics_url != target.metrics_url:
            raise UsageError(
                f"two endpoints are {target.name} and differ in what follows the `?` alone",
                hint="a server is known by address and path; give each a path or port of its own",
            )
        if before.name == target.name:
            found[_server(target)] = target
    return list(found.values())
