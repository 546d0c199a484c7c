"""The HTTP session for Prometheus. Importing this imports requests."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from speccli.core.sources.access import Access, Token

_GET_CHARS = 2000
"""Longest query put into a URL; a longer one is posted (proxies cut URLs at 4 to 8 kB)."""


class _Session(requests.Session):
    """Posts what is too long for a URL."""

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        params = kwargs.get("params") or {}
        if method == "GET" and len(str(params.get("query", ""))) > _GET_CHARS:
            method, kwargs["params"], kwargs["data"] = "POST", None, params
        return super().request(method, url, *args, **kwargs)


class _Bearer(AuthBase):
    """The token, read again for every request: mounted tokens rotate."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if token := self._token.now():
            request.headers["Authorization"] = f"Bearer {token}"
        return request


def session_for(access: Access, token: Token, basic: tuple[str, str] | None) -> requests.Session:
    """A session that is let in as `access` says, and takes nothing from the environment.

    The environment's proxies, netrc and CA variables are left out: direct scraping does not heed
    them either, and a netrc entry would silently replace the token.
    """
    session = _Session()
    session.trust_env = False
    if access.token or access.token_file:
        session.auth = _Bearer(token)
    elif basic:
        session.auth = HTTPBasicAuth(*basic)
    if access.insecure:
        import urllib3

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        session.verify = False
    else:
        session.verify = str(access.ca_file) if access.ca_file else _system_store()
    if access.cert_file:
        key = access.key_file
        session.cert = (str(access.cert_file), str(key)) if key else str(access.cert_file)
    return session


def _system_store() -> str | bool:
    """Where this system keeps its certificate authorities; True for the ones requests brings."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        return paths.cafile
    if paths.capath and any(Path(paths.capath).iterdir()):
        return paths.capath
    return True
