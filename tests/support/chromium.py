"""A page in a real browser, over its debugging protocol: pictures, and what it complains of."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.real import absent


def binary() -> str:
    """Chromium, or a skip."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        absent("chromium is not installed: apt-get install chromium")
    return found


@dataclass
class Page:
    """One tab."""

    socket: aiohttp.ClientWebSocketResponse
    complaints: list[str] = field(default_factory=list)
    """Errors of the console, of scripts and of the network."""
    requests: list[str] = field(default_factory=list)
    _number: int = 0
    _loaded: set[str] = field(default_factory=set)
    """Documents that are whole, by the browser's number."""
    _waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def listen(self) -> None:
        """Sort what the browser says, until it goes."""
        async for message in self.socket:
            told = json.loads(message.data)
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
            else:
                self._event(told["method"], told["params"])

    def _event(self, name: str, told: dict[str, Any]) -> None:
        if name == "Page.lifecycleEvent" and told["name"] == "load":
            self._loaded.add(told["loaderId"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif name == "Log.entryAdded" and told["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(told["entry"]["text"])
        elif name == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif name == "Runtime.consoleAPICalled" and told["type"] in {"error", "warning"}:
            self.complaints.append(str(told["args"]))

    async def call(self, method: str, **params: Any) -> Any:
        """Ask the browser."""
        self._number += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = answer
        await self.socket.send_json({"id": self._number, "method": method, "params": params})
        told = await asyncio.wait_for(answer, 60)
        assert "error" not in told, told
        return told["result"]

    async def open(self, url: str, *, width: int, dark: bool = False) -> None:
        """Load a page at this width, in this scheme."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.setLifecycleEventsEnabled", enabled=True)
        # Of this page: the empty one that a tab begins with may be loading still.
        page = (await self.call("Page.navigate", url=url))["loaderId"]
        async with asyncio.timeout(60):
            while page not in self._loaded:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def ask(self, script: str) -> Any:
        """The value of an expression."""
        told = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return told["result"].get("value")

    async def picture(self) -> bytes:
        """All of the page, as PNG."""
        told = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(told["data"])

    async def paper(self) -> bytes:
        """The page as it would be printed, as PDF."""
        told = await self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(told["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A new tab of a browser of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            binary(),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"),
            *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = await _port(Path(profile))
            async with aiohttp.ClientSession() as session:
                url = await _tab(session, f"http://127.0.0.1:{port}/json/list")
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    try:
                        yield page
                    finally:
                        listening.cancel()
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _tab(session: aiohttp.ClientSession, url: str) -> str:
    """Where the first tab is talked to; it comes after the port that tells of it."""
    for _ in range(600):
        async with session.get(url) as answer:
            tabs = await answer.json()
        for tab in tabs:
            if tab["type"] == "page":
                return str(tab["webSocketDebuggerUrl"])
        await asyncio.sleep(0.1)
    raise TimeoutError("the browser has no tab")


async def _port(profile: Path) -> str:
    told = profile / "DevToolsActivePort"
    for _ in range(600):
        if told.exists() and (lines := told.read_text().splitlines()):
            return lines[0]
        await asyncio.sleep(0.1)
    raise TimeoutError("the browser did not come up")
