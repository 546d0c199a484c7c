"""What a server is, besides its metrics: version, method, K, draft.

`/metrics` names neither the method nor the draft. vLLM tells them at `/server_info`, only with
VLLM_SERVER_DEV_MODE=1; a server on this machine tells them by its command line. Where neither
speaks the method stays unknown, and the operator can say it (`--method`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccli.core.engines.vllm import method_of
from speccli.core.sources.base import facts
from speccli.core.sources.targets import Target

if TYPE_CHECKING:
    import aiohttp

_DEADLINE_S = 2.0
_LARGEST = 4 << 20
"""Bytes of a server's word on itself; vLLM's holds its environment too."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


async def identify(
    session: aiohttp.ClientSession,
    target: Target,
    headers: Mapping[str, str],
    *,
    deadline_s: float = _DEADLINE_S,
) -> dict[str, Any]:
    """`version`, `method`, `k`, `draft` as far as the server tells them. Never raises."""
    info: dict[str, Any] = {}
    try:
        async with asyncio.timeout(min(deadline_s, _DEADLINE_S)):
            version = await _json(session, f"{target.name}/version", headers)
            if isinstance(version, dict):
                info |= facts(version)
            server = await _json(session, f"{target.name}/server_info?config_format=json", headers)
            if server is None and not info:  # SGLang before it renamed it
                server = await _json(session, f"{target.name}/get_server_info", headers)
            told = from_server_info(server)
        if "method" not in told and target.host in _LOOPBACK:
            command = await asyncio.to_thread(listening_command, target.port)
            told |= from_command(command) if command else {}
        info |= facts(told)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the server does not tell
        return info
    return info


async def _json(session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> Any:
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        if response.status != 200:
            return None
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _LARGEST:
                return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def from_server_info(info: Any) -> dict[str, Any]:
    """What vLLM's or SGLang's server information says of speculation."""
    if not isinstance(info, dict):
        return {}
    config = info.get("vllm_config")
    if isinstance(config, dict):
        # Without the key nothing is told; with null there is no speculation.
        return _from_config(config["speculative_config"]) if "speculative_config" in config else {}
    if "speculative_algorithm" in info:
        version, algorithm = info.get("version"), info["speculative_algorithm"]
        if not algorithm:
            return _known(version=version, method="none")
        return _known(
            version=version,
            method=_SGLANG_METHODS.get(str(algorithm).upper(), str(algorithm).lower()),
            k=info.get("speculative_num_steps"),
            draft=info.get("speculative_draft_model_path"),
        )
    return {}


_SGLANG_METHODS = {"EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp", "NGRAM": "ngram"}


def _from_config(config: Any) -> dict[str, Any]:
    if config is not None and not isinstance(config, dict):
        return {}
    if not config:
        return {"method": "none"}
    return _known(
        method=method_of(config),
        k=config.get("num_speculative_tokens"),
        draft=config.get("model"),
    )


def _known(**facts: Any) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def from_command(command: Sequence[str]) -> dict[str, Any]:
    """What a vLLM or SGLang command line says of speculation; empty if it is neither's."""
    words = list(command)
    if any("sglang" in word for word in words[:4]):
        told = dict(_flags(words))
        named = {
            f"speculative_{key}": _scalar(told.get(f"--speculative-{flag}", "null"))
            for key, flag in _SGLANG_FLAGS.items()
        }
        return from_server_info(named)
    if not any("vllm" in word for word in words):
        return {}
    config: dict[str, Any] = {}
    flags = {"--spec-method": "method", "--spec-model": "model"}
    flags["--spec-tokens"] = "num_speculative_tokens"
    for flag, value in _flags(words):
        if flag in {"--speculative-config", "-sc"}:
            try:
                config |= {k.replace("-", "_"): v for k, v in json.loads(value).items()}
            except (ValueError, AttributeError):
                return {}
        elif flag.startswith("--speculative-config."):
            key = flag.removeprefix("--speculative-config.").replace("-", "_")
            config[key] = _scalar(value)
        elif flag in flags:
            config[flags[flag]] = _scalar(value)
    if config:
        if "method" not in config and config.get("model") == "ngram":
            config["method"] = "ngram"
        return _from_config(config)
    return _from_model(words)


_SGLANG_FLAGS = {
    "algorithm": "algorithm",
    "num_steps": "num-steps",
    "draft_model_path": "draft-model-path",
}


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every word as a flag with its value, after `=` or as the next word."""
    for i, word in enumerate(words):
        flag, has_value, value = word.partition("=")
        if not has_value:
            value = words[i + 1] if i + 1 < len(words) else ""
        name, dot, key = flag.partition(".")
        yield (name.replace("_", "-") if name.startswith("--") else name) + dot + key, value


def _from_model(words: Sequence[str]) -> dict[str, Any]:
    """A Speculators folder given as the model brings its own draft."""
    for word in words:
        path = Path(word) / "config.json"
        try:
            if not word.startswith("-") and path.is_file():
                config = json.loads(path.read_text())
                kind = config.get("speculators_model_type") if isinstance(config, dict) else None
                if isinstance(kind, str):
                    method = {"peagle": "p-eagle"}.get(kind, kind)
                    return {"method": method, "draft": word}
        except (OSError, ValueError):
            continue
    return {"method": "none"}


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def listening_command(port: int) -> list[str] | None:
    """The command line of the process on this machine that listens on a TCP port (Linux)."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            links = {str(fd.readlink()) for fd in (process / "fd").iterdir()}
            if links & inodes:
                words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                return [word.decode("utf-8", "replace") for word in words]
        except OSError:
            continue
    return None


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == "0A" and int(columns[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{columns[9]}]")
    return found
