"""The HTTP side of a simulated fleet: a port for each server, or one port for all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from speccli.core.sim.exposition import CONTENT_TYPE
from speccli.core.sim.faults import LOGIN_PAGE, Fault, cut_inside_label
from speccli.core.sim.fleet import Fleet, Replica
from speccli.core.sim.openai import Desk

HEADER: Final = "x-specctl-simulated"
_TICK_S: Final = 0.25
_DRAFT_METHODS: Final = {"p-eagle": "eagle3"}
"""How vLLM itself calls a method that it has no word of its own for."""


class SimServer:
    """Serves a fleet until left: `async with SimServer(fleet) as server: server.urls`.

    Each server of the fleet has a port of its own; with `single_port` they share one and are told
    apart by path (`/e/17/metrics`), and `/fleet/metrics` is one page for all of them.
    """

    def __init__(
        self,
        fleet: Fleet,
        host: str = "127.0.0.1",
        *,
        ports: Sequence[int] | None = None,
        base_port: int = 0,
        single_port: bool = False,
    ) -> None:
        """Prepare to serve.

        Args:
            fleet: What to serve.
            host: The address to listen at.
            ports: A port for each server (0: any free one); None to count up from `base_port`.
            base_port: The first port; 0 for any free ones.
            single_port: All servers on one port, by path.
        """
        self.fleet = fleet
        self.host = host
        self._single = single_port
        wanted = 1 if single_port else len(fleet.replicas)
        if ports is None:
            ports = [base_port + index if base_port else 0 for index in range(wanted)]
        if len(ports) != wanted:
            raise ValueError(f"{len(ports)} ports for {wanted} servers")
        self._ports = list(ports)
        self._sites: list[web.TCPSite | None] = [None] * wanted
        self._desks = [Desk(replica, fleet.time_scale) for replica in fleet.replicas]
        self._runner = web.AppRunner(
            self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.0
        )
        self._ticker: asyncio.Task[None] | None = None

    @property
    def urls(self) -> list[str]:
        """The base URL of each server of the fleet, in its order."""
        if self._single:
            base = f"http://{self.host}:{self._ports[0]}"
            return [f"{base}/e/{index}" for index in range(len(self.fleet.replicas))]
        return [f"http://{self.host}:{port}" for port in self._ports]

    @property
    def fleet_url(self) -> str:
        """The page with every engine's metrics; `?shard=0&shards=4` gives a part of it."""
        return f"http://{self.host}:{self._ports[0]}/fleet/metrics"

    async def __aenter__(self) -> Self:
        """Start listening."""
        await self._runner.setup()
        try:
            for index in range(len(self._ports)):
                await self._open(index)
        except (OSError, OverflowError):  # taken, or past 65535
            await self._runner.cleanup()
            raise
        await self.sync()
        self._ticker = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening, and drop what is still in flight."""
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
        for desk in self._desks:
            await desk.close()
        await self._runner.cleanup()

    async def sync(self) -> None:
        """Bring the fleet to the present and open or close ports as its servers come and go."""
        self.fleet.advance()
        if self._single:
            return
        for index, replica in enumerate(self.fleet.replicas):
            site = self._sites[index]
            if replica.refusing and site is not None:
                await site.stop()
                self._sites[index] = None
            elif not replica.refusing and site is None:
                with contextlib.suppress(OSError):
                    await self._open(index)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            await self.sync()

    async def _open(self, index: int) -> None:
        site = web.TCPSite(self._runner, self.host, self._ports[index], reuse_address=True)
        await site.start()
        server = site._server
        if server is not None and not self._ports[index]:
            self._ports[index] = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self._sites[index] = site

    # Routes -----------------------------------------------------------------------------------

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.on_response_prepare.append(_label)
        app.router.add_get("/fleet/metrics", self._fleet_metrics)
        for prefix in ("", "/e/{index}"):
            for path, handler in (
                ("/metrics", self._metrics),
                ("/metrics/", self._metrics),
                ("/health", self._health),
                ("/version", self._version),
                ("/v1/models", self._models),
                ("/server_info", self._server_info),
                ("/load", self._load),
                ("/ping", self._health),
            ):
                app.router.add_get(prefix + path, handler)
            app.router.add_post(prefix + "/ping", self._health)
            app.router.add_post(prefix + "/v1/completions", self._completions)
            app.router.add_post(prefix + "/v1/chat/completions", self._chat)
        return app

    def _index(self, http: web.Request) -> int:
        """Return which server of the fleet a request is for; drop it if that one is down."""
        named = http.match_info.get("index")
        if self._single:
            if named is None or not named.isdecimal() or int(named) >= len(self.fleet.replicas):
                raise web.HTTPNotFound(text='{"detail":"Not Found"}')
            index = int(named)
        else:
            address = http.transport and http.transport.get_extra_info("sockname")
            if named is not None or not address:
                raise web.HTTPNotFound(text='{"detail":"Not Found"}')
            index = self._ports.index(address[1])
        replica = self.fleet.replicas[index]
        replica.advance()
        if replica.refusing:
            _hang_up(http)
            raise web.HTTPServiceUnavailable
        return index

    def _replica(self, http: web.Request) -> Replica:
        return self.fleet.replicas[self._index(http)]

    async def _metrics(self, http: web.Request) -> web.StreamResponse:
        replica = self._replica(http)
        if replica.fault is Fault.REDIRECT and not http.path.endswith("/"):
            return web.Response(status=307, headers={"Location": f"{http.path}/"})
        if replica.fault in (Fault.NONE, Fault.REDIRECT):
            return web.Response(body=replica.metrics(), headers={"Content-Type": CONTENT_TYPE})
        return await _faulty(http, replica)

    async def _fleet_metrics(self, http: web.Request) -> web.Response:
        try:
            shard, shards = int(http.query.get("shard", 0)), int(http.query.get("shards", 1))
        except ValueError:
            raise web.HTTPBadRequest(text="shard and shards are numbers") from None
        if not 0 <= shard < shards <= 1024:
            raise web.HTTPBadRequest(text="shard must lie in 0..shards-1")
        self.fleet.advance()
        body = self.fleet.metrics(shard, shards)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, http: web.Request) -> web.Response:
        self._index(http)
        return web.Response()

    async def _version(self, http: web.Request) -> web.Response:
        return web.json_response({"version": self._replica(http).version, "simulated": True})

    async def _load(self, http: web.Request) -> web.Response:
        self._index(http)
        return web.json_response({"server_load": 0})

    async def _models(self, http: web.Request) -> web.Response:
        replica = self._replica(http)
        card = {
            "id": replica.config.model,
            "object": "model",
            "created": int(replica.engines[0].started_at),
            "owned_by": "specctl-simulator",
            "root": replica.config.model,
            "max_model_len": replica.config.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _server_info(self, http: web.Request) -> web.Response:
        return web.json_response(server_info(self._replica(http)))

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        return await self._desks[self._index(http)].answer(http, chat=False)

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        return await self._desks[self._index(http)].answer(http, chat=True)


def server_info(replica: Replica) -> dict[str, Any]:
    """Return what vLLM's /server_info says of the configuration, in development mode."""
    config = replica.config
    speculative = None
    if config.k:
        speculative = {
            "method": _DRAFT_METHODS.get(config.method, config.method),
            "model": config.draft,
            "num_speculative_tokens": config.k,
            "parallel_drafting": config.method == "p-eagle",
            "draft_tensor_parallel_size": config.gpus,
            "num_speculative_tokens_per_batch_size": None,
            "rejection_sample_method": "standard",
            "draft_sample_method": "greedy",
        }
    return {
        "simulated": True,
        "vllm_config": {
            "model_config": {
                "model": config.model,
                "served_model_name": config.model,
                "max_model_len": config.max_model_len,
                "quantization": None,
                "dtype": "torch.bfloat16",
            },
            "speculative_config": speculative,
            "scheduler_config": {
                "max_num_seqs": config.max_num_seqs,
                "max_num_batched_tokens": config.max_num_batched_tokens,
                "async_scheduling": config.method != "ngram",
            },
            "parallel_config": {
                "tensor_parallel_size": config.gpus,
                "data_parallel_size": len(replica.engines),
                "pipeline_parallel_size": 1,
            },
        },
    }


async def _label(_http: web.Request, response: web.StreamResponse) -> None:
    response.headers[HEADER] = "1"


def _hang_up(http: web.Request) -> None:
    """Break the connection at once: the client sees it end, whatever is sent after."""
    if http.transport is not None:
        http.transport.abort()


async def _faulty(http: web.Request, replica: Replica) -> web.StreamResponse:
    """Answer a scrape as the server's fault has it."""
    match replica.fault:
        case Fault.ERROR_500:
            return web.Response(status=500, text="Internal Server Error")
        case Fault.HTML:
            return web.Response(text=LOGIN_PAGE, content_type="text/html")
        case Fault.HANG:
            await asyncio.Event().wait()
        case Fault.CUT:
            body = cut_inside_label(replica.metrics())
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
        case Fault.DROP:
            body = replica.metrics()
            headers = {"Content-Type": CONTENT_TYPE, "Content-Length": str(len(body))}
            response = web.StreamResponse(headers=headers)
            await response.prepare(http)
            await response.write(body[: len(body) // 2])
            _hang_up(http)
            return response
        case _:
            pass
    return web.Response(headers={"Content-Type": CONTENT_TYPE})
