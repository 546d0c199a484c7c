"""How to be let in: token, certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from speccli.core.errors import UsageError

_T = TypeVar("_T")
_LONGEST = 16_384
"""Characters; servers take about 8,000 in a header."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to be let in."""

    token: str | None = None
    """Bearer token."""
    token_file: Path | None = None
    """File the token is read from, again at every round (mounted tokens rotate)."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    """Client certificate (PEM), with its key in it or in `key_file`."""
    key_file: Path | None = None
    insecure: bool = False
    """Accept any server certificate."""

    def bearer(self) -> str | None:
        """The token to send now.

        Raises:
            UsageError: the token file cannot be read, or what it holds is no token.
        """
        token, where = self.token or "", "--token"
        if self.token_file is not None:
            where = f"token file {self.token_file}"
            try:
                token = self.token_file.read_text()
            except OSError as error:
                raise UsageError(f"{where}: {error.strerror}", hint="check --token-file") from error
            except UnicodeDecodeError as error:
                raise UsageError(f"{where}: not text", hint="check --token-file") from error
        token = token.strip()
        if self.token_file is not None and not token:
            raise UsageError(f"{where}: it is empty", hint="leave --token-file out to ask without")
        if len(token) > _LONGEST:
            raise UsageError(
                f"{where}: {len(token):,} characters are no token",
                hint=f"{_LONGEST:,} at most; is it another file?",
            )
        if not token.isprintable() or " " in token:
            raise UsageError(f"{where}: a token is one word", hint="give the token alone")
        return token or None

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS settings.

        Raises:
            UsageError: a certificate file cannot be used.
        """
        if self.key_file and not self.cert_file:
            raise UsageError("--key without --cert", hint="give the certificate it belongs to")
        context = _with_file(self.ca_file, lambda: ssl.create_default_context(cafile=self.ca_file))
        if self.cert_file:
            cert, key = self.cert_file, self.key_file
            if key:
                _with_file(key, key.read_bytes)
            _with_file(cert, lambda: context.load_cert_chain(cert, key, password=_no_password))
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    @property
    def tls(self) -> bool:
        """Whether anything is said of TLS."""
        return bool(self.ca_file or self.cert_file or self.key_file or self.insecure)


class Token:
    """The token in use: read anew each time, and kept while its file is being replaced."""

    def __init__(self, access: Access) -> None:
        """Nothing is read yet."""
        self._access = access
        self._last: str | None = None

    def now(self) -> str | None:
        """The token to send now; the last one while the file is gone, empty or half written.

        Raises:
            UsageError: it cannot be read, and never could.
        """
        try:
            token = self._access.bearer()
        except UsageError:
            if self._last is None:
                raise
            return self._last
        self._last = token or self._last
        return self._last


def _with_file(path: Path | None, use: Callable[[], _T]) -> _T:
    try:
        return use()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        if isinstance(error, ssl.SSLError):
            why = f"not usable as PEM ({error.reason or error})"
        raise UsageError(
            f"certificate file {path}: {why}", hint="--ca, --cert and --key take PEM files"
        ) from error


def _no_password() -> str:
    raise ValueError("its key is encrypted; give one without a passphrase")
