"""What an `--endpoint` means."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from speccli.core.errors import UsageError


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
    hint = "an endpoint looks like http://10.0.0.7:8000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"endpoint {text!r} is not a URL: {error}", hint=hint) from error
    if parts.scheme not in {"http", "https"}:
        raise UsageError(f"endpoint {text!r}: scheme {parts.scheme!r} is not http(s)", hint=hint)
    if not parts.hostname or any(c.isspace() for c in given):
        raise UsageError(f"endpoint {text!r} names no host", hint=hint)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    at = f"{host}:{port}" if port is not None else host
    path = parts.path.rstrip("/").removesuffix("/metrics")
    name = f"{parts.scheme}://{at}{path}"
    query = f"?{parts.query}" if parts.query else ""
    return Target(
        name=name,
        metrics_url=f"{name}/metrics{query}",
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )


def parse_targets(texts: list[str]) -> list[Target]:
    """Each endpoint once, in the order given.

    Raises:
        UsageError: one of them is not an address.
    """
    return list({target.name: target for target in map(parse_target, texts)}.values())
