"""Where a redirect leads: to the same server, or away from it."""

from __future__ import annotations

from urllib.parse import urlsplit

REDIRECTS = frozenset({301, 302, 303, 307, 308})


def server_of(url: str) -> str:
    """`host:port`, never the credentials."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that is none"
    return f"{parts.hostname or 'nowhere'}{port}"


def same_server(url: str, onward: str) -> bool:
    """Whether a redirect stays where the credentials belong, and does not leave TLS."""
    try:
        old, new = urlsplit(url), urlsplit(onward)
        ports = [parts.port or _PORTS.get(parts.scheme) for parts in (old, new)]
    except ValueError:
        return False
    if new.scheme not in _PORTS or old.hostname != new.hostname or (new.username or new.password):
        return False
    upgraded = (old.scheme, new.scheme) == ("http", "https") and ports == [80, 443]
    return upgraded or (old.scheme == new.scheme and ports[0] == ports[1])


_PORTS = {"http": 80, "https": 443}
