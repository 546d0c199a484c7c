"""When a certificate ends, read from its DER: Python decodes only those that it accepts."""

from __future__ import annotations

from datetime import UTC, datetime

_UTC_TIME, _GENERALIZED_TIME, _SEQUENCE, _VERSION = 0x17, 0x18, 0x30, 0xA0


def expiry(der: bytes | None) -> datetime | None:
    """`notAfter` of an X.509 certificate (RFC 5280 §4.1); None where it cannot be read."""
    try:
        fields = _members(_members(der or b"")[0][1])  # Certificate → tbsCertificate
        fields = _members(fields[0][1]) if fields[0][0] == _SEQUENCE else fields
        if fields[0][0] == _VERSION:
            fields = fields[1:]
        validity = _members(fields[3][1])  # serial, signature, issuer, validity
        kind, text = validity[1]
        if kind == _UTC_TIME:
            short = text.decode("ascii")
            century = "19" if int(short[:2]) >= 50 else "20"
            return _time(century + short)
        return _time(text.decode("ascii")) if kind == _GENERALIZED_TIME else None
    except (IndexError, ValueError):
        return None


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _members(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each value in a run of DER values.

    Raises:
        IndexError: cut short.
    """
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            octets = length & 0x7F
            length = int.from_bytes(data[at : at + octets], "big")
            at += octets
        if at + length > len(data):
            raise IndexError("a value longer than what holds it")
        found.append((tag, data[at : at + length]))
        at += length
    return found
