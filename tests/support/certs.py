"""Certificates for one test run, made by the `openssl` command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """PEM files of an authority and of what it signed for localhost and 127.0.0.1."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def pem(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def server(self, name: str = "server", *, clients: bool = False) -> ssl.SSLContext:
        """What a server uses; `clients`: it wants a certificate of theirs."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.pem(name), self.key(name))
        if clients:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_certificates(folder: Path) -> Certificates:
    """An authority, and a server's, an expired, another host's and a client's certificate."""
    made = make_authority(folder)
    here = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
    sign(made, "server", here)
    sign(made, "client", "extendedKeyUsage=clientAuth")
    sign(made, "expired", here, days="-1")
    sign(made, "other", "subjectAltName=DNS:other.example")
    _openssl(
        "ec", "-aes128", "-passout", "pass:secret",
        "-in", made.key("client"), "-out", made.key("encrypted"),
    )  # fmt: skip
    return made


def make_authority(folder: Path) -> Certificates:
    """An authority that has signed nothing yet."""
    assert shutil.which("openssl"), "these tests make certificates with the openssl command"
    made = Certificates(folder)
    _openssl(
        "req", "-x509", *_KEY, "-days", "2", "-subj", "/CN=specctl test authority",
        "-keyout", made.key("ca"), "-out", made.ca,
    )  # fmt: skip
    return made


def sign(
    made: Certificates, name: str, extension: str, *, subject: str = "", days: str = "2"
) -> None:
    """Sign a certificate: its files are called `name`, and so is its owner without `subject`."""
    request, extensions = made.folder / f"{name}.csr", made.folder / f"{name}.ext"
    extensions.write_text(f"{extension}\n")
    _openssl(
        "req", *_KEY, "-subj", subject or f"/CN={name}", "-keyout", made.key(name), "-out", request
    )  # fmt: skip
    signed = (
        "x509", "-req", "-in", request, "-CA", made.ca, "-CAkey", made.key("ca"),
        "-extfile", extensions, "-out", made.pem(name),
    )  # fmt: skip
    try:
        _openssl(*signed, "-days", days)
    except AssertionError:  # an OpenSSL that takes no negative days has dates instead
        _openssl(*signed, "-not_before", "20200101000000Z", "-not_after", "20200102000000Z")


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
