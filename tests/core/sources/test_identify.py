from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from speccli.core.sources.identify import (
    SUPERVISOR,
    from_command,
    from_server_info,
    identify,
    listening,
)
from speccli.core.sources.targets import parse_target
from tests.support.servers import Server


def vllm(config: Any) -> dict[str, Any]:
    return {"vllm_config": {"speculative_config": config}, "system_env": {}}


@pytest.mark.parametrize(
    ("info", "told"),
    [
        pytest.param(
            vllm({"method": "eagle3", "num_speculative_tokens": 4, "model": "org/head"}),
            {"method": "eagle3", "k": 4, "draft": "org/head"},
            id="eagle3",
        ),
        pytest.param(
            vllm({"method": "eagle3", "parallel_drafting": True, "num_speculative_tokens": 7}),
            {"method": "p-eagle", "k": 7},
            id="p-eagle-is-eagle3-that-drafts-in-parallel",
        ),
        pytest.param(
            vllm({"method": "ngram", "num_speculative_tokens": 3, "model": None}),
            {"method": "ngram", "k": 3},
            id="ngram",
        ),
        pytest.param(vllm(None), {"method": "none"}, id="null-is-none"),
        pytest.param({"vllm_config": {}}, {}, id="no-key-tells-nothing"),
        pytest.param({"vllm_config": "VllmConfig(…)"}, {}, id="text-tells-nothing"),
        pytest.param(vllm("eagle3"), {}, id="text-inside-tells-nothing"),
        pytest.param(
            {
                "speculative_algorithm": "EAGLE3",
                "speculative_num_steps": 5,
                "speculative_draft_model_path": "org/head",
                "version": "0.5.23",
            },
            {"method": "eagle3", "k": 5, "draft": "org/head", "version": "0.5.23"},
            id="sglang-eagle3",
        ),
        pytest.param(
            {"speculative_algorithm": "NEXTN", "speculative_num_steps": 1},
            {"method": "mtp", "k": 1},
            id="sglang-nextn",
        ),
        pytest.param({"speculative_algorithm": None}, {"method": "none"}, id="sglang-none"),
        pytest.param({}, {}, id="another-service"),
        pytest.param(["x"], {}, id="a-list"),
        pytest.param(None, {}, id="no-answer"),
    ],
)
def test_a_servers_word_on_itself(info: Any, told: dict[str, Any]) -> None:
    assert from_server_info(info) == told


JSON = json.dumps({"method": "eagle3", "model": "org/head", "num_speculative_tokens": 4})
EAGLE3 = {"method": "eagle3", "draft": "org/head", "k": 4}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param(["vllm", "serve", "m", "--speculative-config", JSON], EAGLE3, id="json"),
        pytest.param(["vllm", "serve", "m", f"--speculative-config={JSON}"], EAGLE3, id="json-is"),
        pytest.param(["vllm", "serve", "m", "--speculative_config", JSON], EAGLE3, id="underscore"),
        pytest.param(["vllm", "serve", "m", "-sc", JSON], EAGLE3, id="short"),
        pytest.param(
            [
                "python",
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--speculative-config.method",
                "eagle3",
                "--speculative-config.model=org/head",
                "--speculative-config.num_speculative_tokens",
                "4",
            ],
            EAGLE3,
            id="dotted",
        ),  # fmt: skip
        pytest.param(
            [
                "vllm",
                "serve",
                "m",
                "--speculative-config",
                JSON,
                "--speculative-config.parallel-drafting",
                "true",
            ],
            {**EAGLE3, "method": "p-eagle"},
            id="json-and-dotted",
        ),  # fmt: skip
        pytest.param(
            [
                "vllm",
                "serve",
                "m",
                "--spec-method",
                "eagle3",
                "--spec-model",
                "org/head",
                "--spec-tokens=4",
            ],
            EAGLE3,
            id="spec-flags",
        ),  # fmt: skip
        pytest.param(["vllm", "serve", "m"], {"method": "none"}, id="without-speculation"),
        pytest.param(["vllm", "serve", "m", "-sc", "{broken"], {}, id="broken-json"),
        pytest.param(["vllm", "serve", "m", "-sc"], {}, id="no-value"),
        pytest.param(
            [
                "python3",
                "-m",
                "sglang.launch_server",
                "--speculative-algorithm",
                "EAGLE3",
                "--speculative-num-steps=5",
                "--speculative-draft-model-path",
                "org/head",
            ],
            {"method": "eagle3", "k": 5, "draft": "org/head"},
            id="sglang",
        ),  # fmt: skip
        pytest.param(["python3", "-m", "http.server"], {}, id="another-program"),
        pytest.param(["kubectl", "port-forward", "svc/vllm", "8000:8000"], {}, id="port-forward"),
        pytest.param(["kubectl", "port-forward", "vllm", "serve"], {}, id="port-forward-of-a-pod"),
        pytest.param(["ssh", "-N", "-L", "8000:vllm-0:8000", "host"], {}, id="tunnel"),
        pytest.param(["ssh", "-L", "8000:sglang:8000", "host"], {}, id="tunnel-to-sglang"),
        pytest.param(["socat", "TCP-LISTEN:8000", "TCP:vllm:8000"], {}, id="socat"),
        pytest.param(["python3", "/opt/vllm/proxy.py", "serve"], {}, id="a-script-near-vllm"),
        pytest.param(["python3", "-c", "x", "vllm", "serve", "m"], {}, id="python-c"),
        pytest.param(["vllm", "serve", "org/m-speculator.eagle3"], {}, id="perhaps-with-a-draft"),
        pytest.param(["vllm", "bench", "serve"], {}, id="vllm-that-serves-not"),
        pytest.param(
            ["/usr/bin/python3.11", "-u", "-X", "dev", "/opt/bin/vllm", "serve", "m"],
            {"method": "none"},
            id="script-of-python",
        ),
        pytest.param(
            ["python", "-m", "vllm.entrypoints.cli.main", "serve", "m"],
            {"method": "none"},
            id="module-of-the-cli",
        ),
        pytest.param(["python", "-m", "vllm.entrypoints.cli.main", "bench"], {}, id="another-verb"),
        pytest.param(
            ["python3", "-m", "sglang.launch_server"], {"method": "none"}, id="sglang-plain"
        ),
        pytest.param([], {}, id="nothing"),
    ],
)
def test_a_command_line_tells_the_method(line: list[str], told: dict[str, Any]) -> None:
    assert from_command(line) == told


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"speculators_model_type": "peagle"}, {"method": "p-eagle"}),
        ({"speculators_model_type": "eagle3"}, {"method": "eagle3"}),
        ({"model_type": "llama"}, {"method": "none"}),
        (["a", "list"], {"method": "none"}),
    ],
)
def test_a_speculators_folder_brings_its_own_draft(
    tmp_path: Path, config: Any, told: dict[str, Any]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = from_command(["vllm", "serve", str(tmp_path)])
    assert found == (told if told["method"] == "none" else {**told, "draft": str(tmp_path)})


@pytest.mark.parametrize(
    ("content", "typed", "told"),
    [
        (f"model: m\nspeculative-config: '{JSON}'\n", [], EAGLE3),
        ("speculative_config:\n  method: ngram\n", [], {"method": "ngram"}),
        ("spec-method: ngram\nspec-tokens: 3\n", [], {"method": "ngram", "k": 3}),
        ("model: m\nenforce-eager: true\n", [], {"method": "none"}),
        ("spec-method: ngram\n", ["-sc", JSON], EAGLE3),
        ("a: [", [], {}),
        ("just text", [], {}),
        (None, [], {}),
        (None, ["-sc", JSON], EAGLE3),
    ],
)  # fmt: skip
def test_what_stands_in_the_file_of_config_counts(
    tmp_path: Path, content: str | None, typed: list[str], told: dict[str, Any]
) -> None:
    file = tmp_path / "serve.yaml"
    if content is not None:
        file.write_text(content)
    assert from_command(["vllm", "serve", "m", "--config", str(file), *typed]) == told
    assert from_command(["vllm", "serve", "m", f"--config={file}", *typed]) == told


SERVE = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Nothing(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(404)
    def log_message(self, *words):
        pass

server = HTTPServer(("127.0.0.1", 0), Nothing)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize("way", ["typed", "file"])
async def test_the_process_behind_a_port_of_this_machine_is_found(tmp_path: Path, way: str) -> None:
    script = tmp_path / "vllm"
    script.write_text(SERVE)
    (tmp_path / "serve.yaml").write_text(f"speculative-config: '{JSON}'\n")
    more = ["--speculative-config", JSON] if way == "typed" else ["--config", "serve.yaml"]
    words = [str(script), "serve", "m", *more]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        found = listening(port)
        assert found is not None
        assert found.command[1:] == words
        assert from_command(found.command, found.folder) == EAGLE3
        async with ClientSession() as session:
            target = parse_target(f"http://127.0.0.1:{port}")
            assert await identify(session, target, {}) == EAGLE3
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("words", "meant"), [([], "none"), (["--speculative-config", JSON], EAGLE3["method"])]
)
async def test_a_local_deployment_tells_what_it_was_meant_to_be(
    tmp_path: Path, words: list[str], meant: str
) -> None:
    folder = tmp_path / Path(*SUPERVISOR.split(".")).parent
    folder.mkdir(parents=True)
    (tmp_path / (SUPERVISOR.replace(".", "/") + ".py")).write_text(SERVE)
    engines = [
        {"revision": 1, "model": "m", "arguments": ["--speculative-config", "{}"]},
        {"revision": 2, "model": "m", "arguments": words},
    ]
    (tmp_path / "wanted.json").write_text(json.dumps({"serve": 2, "engines": engines}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", SUPERVISOR, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        async with ClientSession() as session:
            target = parse_target(f"http://127.0.0.1:{port}")
            assert await identify(session, target, {}) == {"meant": meant}
            (tmp_path / "wanted.json").unlink()
            assert await identify(session, target, {}) == {}
    finally:
        process.kill()
        await process.wait()


def test_a_port_nobody_listens_at_has_no_command() -> None:
    assert listening(1) is None


async def ask(handler: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    # Not at 127.0.0.1: the command line of this process must not answer for the server.
    async with Server(handler, host="127.0.0.2") as server, ClientSession() as session:
        return await identify(session, parse_target(server.url), headers or {})


@pytest.mark.parametrize(
    "answer",
    [
        "[" * 100_000,
        "null",
        '{"version": 5}',
        '{"vllm_config": {"speculative_config": {"method": ["x"], "num_speculative_tokens": "4"}}}',
        "<html>",
        "",
    ],
    ids=lambda text: text[:20],
)
async def test_strange_answers_tell_nothing(answer: str) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=answer)

    assert not {"version", "k", "draft"} & (await ask(handler)).keys()


async def test_older_sglang_is_asked_where_it_answers() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/get_server_info":
            return web.json_response({"speculative_algorithm": "EAGLE", "version": "0.5.10"})
        return web.Response(status=404)

    assert await ask(handler) == {"method": "eagle", "version": "0.5.10"}


async def test_a_redirect_does_not_take_the_credentials_along() -> None:
    async def elsewhere(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"version": "6.6.6"})

    async with Server(elsewhere) as other:

        async def handler(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": other.url})

        assert await ask(handler, {"Authorization": "Bearer t0ken"}) == {}
        assert other.asked == []
