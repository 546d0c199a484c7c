"""Mail, chat and the rest, through apprise: one message when something begins or ends."""

from __future__ import annotations

import asyncio
import hashlib
from importlib import import_module
from typing import Any

from speccli.core.alert.notify.notice import News, NotTold
from speccli.core.errors import UsageError

_HINT = "pip install 'specctl[notify]'"


class Apprise:
    """One apprise URL."""

    repeats = False

    def __init__(self, url: str) -> None:
        """`url`: as apprise has them, `mailto://…`, `slack://…`; it is a secret.

        Raises:
            UsageError: it has no scheme.
        """
        scheme, mark, _ = url.strip().partition("://")
        if not mark or not scheme.isidentifier():
            raise UsageError(
                "--notify wants an apprise URL", hint="mailto://…, slack://…, json://host/path"
            )
        self.name = f"apprise {scheme}://…"
        self.mark = f"apprise-{hashlib.sha256(url.strip().encode()).hexdigest()[:16]}"
        self._url = url.strip()
        self._box: Any = None

    async def unusable(self) -> str | None:
        """Whether apprise is installed and knows the URL; not whether it would be delivered."""
        try:
            await asyncio.to_thread(self._opened)
        except NotTold as why:
            return str(why)
        return None

    async def tell(self, news: News) -> None:
        """Send a message where there is news.

        Raises:
            NotTold: apprise is not installed, does not know the URL, or could not deliver.
        """
        if news.begun or news.ended:
            await asyncio.to_thread(self._send, news)

    def _opened(self) -> Any:
        if self._box is None:
            try:
                apprise: Any = import_module("apprise")
            except ImportError as error:
                raise NotTold(f"apprise is not installed: {_HINT}") from error
            box = apprise.Apprise()
            try:
                known = box.add(self._url)
            except Exception as error:  # a plug-in's own, of any kind
                raise NotTold(f"{type(error).__name__} in apprise") from error
            if not known:
                raise NotTold("apprise does not know this URL")
            self._box = box
        return self._box

    def _send(self, news: News) -> None:
        box = self._opened()
        try:
            sent = box.notify(title=_title(news), body=_body(news), notify_type=_type(news))
        except Exception as error:  # a plug-in's own, of any kind
            raise NotTold(f"{type(error).__name__} in apprise") from error
        if not sent:
            raise NotTold("it was not delivered")


def _title(news: News) -> str:
    simulated = "SIMULATED " if news.simulated else ""
    worst = _type(news)
    word = {"failure": "CRITICAL", "success": "RESOLVED"}.get(worst, "WARNING")
    return f"{simulated}specctl {news.deployment}: {word}"


def _type(news: News) -> str:
    if not news.begun:
        return "success"
    critical = any(told.finding.severity == "critical" for told in news.begun.values())
    return "failure" if critical else "warning"


def _body(news: News) -> str:
    lines = []
    for told in news.begun.values():
        f = told.finding
        lines += [f"{f.severity.upper()} {f.code} {f.subject}: {f.evidence}", f.cause]
        lines += [f"Do: {f.action}", ""]
    for told in news.ended.values():
        f = told.finding
        lines += [f"RESOLVED {f.code} {f.subject}; it was: {f.evidence}", ""]
    still = len(news.active) - len(news.begun)
    if still > 0:
        lines.append(f"{still} more known before.")
    return "\n".join(lines).rstrip()
