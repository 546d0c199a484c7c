"""What a watch says of itself over HTTP: /metrics and /healthz."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from speccli.core.errors import UsageError

if TYPE_CHECKING:
    from aiohttp import web

_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Families:
    """A page of metrics; every sample has the deployment's label."""

    def __init__(self, deployment: str) -> None:
        """Empty at first."""
        self._own = f'deployment="{escaped(deployment)}"'
        self._lines: list[str] = []

    def add(self, name: str, kind: str, text: str, *samples: tuple[str, float | None]) -> None:
        """One family; samples are labels and a value, and what is None is left out."""
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for labels, value in known:
            both = f"{self._own},{labels}" if labels else self._own
            self._lines.append(f"{name}{{{both}}} {value:.10g}")

    @property
    def text(self) -> str:
        """As it is served."""
        return "\n".join(self._lines) + "\n"


class Endpoint(ABC):
    """Serves a page, and whether all is well."""

    unwell = "no successful check of late"
    _runner: web.AppRunner | None = None

    @property
    @abstractmethod
    def healthy(self) -> bool:
        """Whether it does what it is for."""

    @abstractmethod
    def page(self) -> str:
        """The metrics."""

    async def listen(self, host: str, port: int) -> str:
        """Serve; returns the URL.

        Raises:
            UsageError: the port cannot be had.
        """
        from aiohttp import web

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(body=self.page().encode(), headers={"Content-Type": _TYPE})

        async def health(_: web.Request) -> web.Response:
            words = "ok\n" if self.healthy else f"{self.unwell}\n"
            return web.Response(text=words, status=200 if self.healthy else 503)

        app = web.Application()
        app.router.add_get("/metrics", metrics)
        app.router.add_get("/healthz", health)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, reuse_address=True).start()
        except (OSError, OverflowError) as error:
            await self.aclose()
            why = getattr(error, "strerror", None) or error
            raise UsageError(
                f"cannot listen at {host}:{port}: {why}", hint="choose another --listen"
            ) from error
        bound = self._runner.addresses[0]
        return f"http://{bound[0]}:{bound[1]}"

    async def aclose(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def escaped(text: str) -> str:
    """A label's value."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def address(text: str) -> tuple[str, int] | None:
    """`:9467`, `9467`, `0.0.0.0:9467`, `[::]:9467`; None for `none`.

    Raises:
        UsageError: none of these.
    """
    if text == "none":
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen {text!r} is no address", hint="write 127.0.0.1:9467")
    return host.strip("[]") or "127.0.0.1", int(port)
