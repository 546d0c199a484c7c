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
    def host(self) -> str:
        """Host name or address."""
        return urlsplit(self.name).hostname or ""

    @property
    def port(self) -> int:
        """TCP port."""
        parts = urlsplit(self.name)
        return parts.port or (443 if parts.scheme == "https" else 80)


def parse_target(text: str) -> Target:
    """`http://host:8000`, `host:8000`, or the address of the metrics page itself.

    Raises:
        UsageError: not an address.
    """
    given = text.strip()
    url = given if "://" in given else f"http://{given}"
    shown = repr(redact_url(given))
    hint = "an endpoint looks like http://10.0.0.7:8000"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # Python's words for it repeat what stands there, which may be part of a password.
        why = "its port is not one" if "port" in str(error).lower() else "its host cannot be read"
        raise UsageError(f"endpoint {shown} is not a URL: {why}", hint=hint) from error
    if parts.scheme not in {"http", "https"}:
        raise UsageError(f"endpoint {shown}: scheme {parts.scheme!r} is not http(s)", hint=hint)
    if not host or port == 0 or any(c.isspace() or not c.isprintable() for c in given):
        raise UsageError(f"endpoint {shown} names no host and port", hint=hint)
    address = f"[{host}]" if ":" in host else host
    at = address if port is None else f"{address}:{port}"
    path = parts.path.rstrip("/").removesuffix("/metrics").rstrip("/")
    name = f"{parts.scheme}://{at}{path}"
    query = f"?{parts.query}" if parts.query else ""
    lets_in = bool(parts.username or parts.password)
    return Target(
        name=name,
        metrics_url=f"{name}/metrics{query}",
        user=unquote(parts.username or "") if lets_in else None,
        password=unquote(parts.password or "") if lets_in else None,
    )


def parse_targets(texts: list[str]) -> list[Target]:
    """Each endpoint once, in the order given.

    Raises:
        UsageError: one of them is not an address.
    """
    return list({target.name: target for target in map(parse_target, texts)}.values())
