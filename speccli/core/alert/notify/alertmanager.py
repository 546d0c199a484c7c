"""Alertmanager's API v2: alerts by label, resent at every check, ended by their `endsAt`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from speccli.core.alert.notify.notice import News, NotTold, Told
from speccli.core.errors import UsageError
from speccli.core.sources.scrape import Access, explain

LIFETIME_S = 3600.0
"""After which Alertmanager takes an alert for over if it hears no more of it.

Long on purpose: that nobody looks any more does not mean that the fault is gone.
"""
_LOOK_UP_S = 2.0


class Alertmanager:
    """One Alertmanager; of a cluster, give each."""

    repeats = True

    def __init__(self, url: str, access: Access | None = None) -> None:
        """`url`: its base URL, with `user:password@` where it wants them.

        Raises:
            UsageError: not a URL.
        """
        text = url.strip() if "://" in url else f"http://{url.strip()}"
        try:
            parts = urlsplit(text)
            port = f":{parts.port}" if parts.port else ""
        except ValueError as error:
            raise UsageError(f"--alertmanager is not a URL: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(
                "--alertmanager names no http(s) host", hint="http://alertmanager.monitoring:9093"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        path = parts.path.rstrip("/").removesuffix("/api/v2/alerts").removesuffix("/api/v2")
        base = f"{parts.scheme}://{host}{port}{path}"
        self.name = f"Alertmanager {base}"
        self.mark = f"alertmanager-{hashlib.sha256(base.encode()).hexdigest()[:16]}"
        self._url = f"{base}/api/v2/alerts"
        self._headers: dict[str, str] = {}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._access = access or Access()
        self._host = parts.hostname

    async def unusable(self) -> str | None:
        """Whether there is a host of that name; not whether it is an Alertmanager."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_LOOK_UP_S):
                await loop.getaddrinfo(self._host, None)
        except TimeoutError:  # a slow name server is no word on the name
            return None
        except (OSError, UnicodeError):
            return "name not found"
        return None

    async def tell(self, news: News) -> None:
        """Send everything that is so, and the end of what is over, in one request.

        Raises:
            NotTold: it was not taken.
        """
        alerts = [alert(news, told, news.at + LIFETIME_S) for told in news.active.values()]
        alerts += [alert(news, told, news.at) for told in news.over.values()]
        if alerts:
            await self._post(alerts)

    async def _post(self, alerts: list[dict[str, Any]]) -> None:
        import aiohttp

        ssl = self._access.ssl_context() if self._url.startswith("https") else True
        try:
            async with (
                aiohttp.ClientSession(headers=self._headers) as session,
                session.post(self._url, json=alerts, ssl=ssl, allow_redirects=False) as answer,
            ):
                if answer.status == 200:
                    return
                said = " ".join((await answer.text(errors="replace"))[:120].split())
        except (aiohttp.ClientError, OSError) as error:
            raise NotTold(explain(error)) from error
        raise NotTold(f"HTTP {answer.status} {said}".rstrip())


def alert_name(code: str) -> str:
    """`ZERO_ACCEPTANCE` as the generated rules call it: `SpecctlZeroAcceptance`."""
    return "Specctl" + "".join(part.capitalize() for part in code.split("_"))


def alert(news: News, told: Told, ends: float) -> dict[str, Any]:
    """One alert in the API's form; its labels are what it is known by."""
    f = told.finding
    labels = {
        "alertname": alert_name(f.code),
        "code": f.code,
        "severity": f.severity,
        "subject": f.subject,
        "deployment": news.deployment,
        "source": "specctl",
    }
    if news.simulated:
        labels["simulated"] = "true"
    return {
        "labels": labels,
        "annotations": {
            "summary": f"{f.code} {f.subject}: {f.evidence}",
            "description": f.cause,
            "action": f.action,
        },
        "startsAt": _time(min(told.since, ends)),
        "endsAt": _time(ends),
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
