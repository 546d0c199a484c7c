"""What a server is, besides its metrics: version, method, K, draft, and what it was meant to be.

`/metrics` names neither the method nor the draft. vLLM tells them at `/server_info`, only with
VLLM_SERVER_DEV_MODE=1; a server on this machine tells them by its command line. Where neither
speaks the method stays unknown, and the operator can say it (`--method`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from speccli.core.engines.vllm import method_of
from speccli.core.sources.base import facts
from speccli.core.sources.targets import Target

if TYPE_CHECKING:
    import aiohttp

_DEADLINE_S = 2.0
_LARGEST = 4 << 20
"""Bytes of a server's word on itself; vLLM's holds its environment too."""
SUPERVISOR = "speccli.core.deploy.supervisor"
"""The module that keeps a local deployment's address."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


async def identify(
    session: aiohttp.ClientSession,
    target: Target,
    headers: Mapping[str, str],
    *,
    deadline_s: float = _DEADLINE_S,
    how: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """`version`, `method`, `k`, `draft` as far as the server tells them, and `meant`. Never raises.

    `how`: more arguments for each request (a proxy).
    """
    base = target.base_url
    info: dict[str, Any] = {}
    try:
        async with asyncio.timeout(min(deadline_s, _DEADLINE_S)):
            version = await _json(session, f"{base}/version", headers, how)
            if isinstance(version, dict):
                info |= facts(version)
            server = await _json(session, f"{base}/server_info?config_format=json", headers, how)
            if server is None and not info:  # SGLang before it renamed it
                server = await _json(session, f"{base}/get_server_info", headers, how)
            told = from_server_info(server)
        if told.get("method", "none") == "none" and target.host in _LOOPBACK:
            told = await asyncio.to_thread(_from_port, target.port) | told
        info |= facts(told)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the server does not tell
        return info
    return info


async def _json(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], how: Mapping[str, Any]
) -> Any:
    async with session.get(url, headers=headers, allow_redirects=False, **how) as response:
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


def from_command(command: Sequence[str], process: Path | None = None) -> dict[str, Any]:
    """What a vLLM or SGLang command line says of speculation; empty if it is neither's.

    Args:
        command: The words.
        process: Its folder in /proc, whose working directory and root paths belong to; None: ours.
    """
    program, words = _program(command)
    if program is None:
        return {}
    from_file = _config_words(words, process)
    if program == "sglang":
        told = dict(_flags([*(from_file or ()), *words]))
        named = {
            f"speculative_{key}": _scalar(told.get(f"--speculative-{flag}", "null"))
            for key, flag in _SGLANG_FLAGS.items()
        }
        if from_file is None and not named["speculative_algorithm"]:
            return {}
        return from_server_info(named)
    config = _speculation(words)
    if config == {}:  # what is typed beats what is in the file
        if from_file is None:
            return {}
        config = _speculation(from_file)
    if config is None:
        return {}
    if config:
        if "method" not in config and config.get("model") == "ngram":
            config["method"] = "ngram"
        return _from_config(config)
    return _from_model([*words, *(from_file or ())], process)


def _program(command: Sequence[str]) -> tuple[str | None, list[str]]:
    """`vllm` or `sglang` where a command line starts that server; the words after it."""
    words = list(command)
    if words and _PYTHON.fullmatch(PurePath(words[0]).name):
        del words[0]
        while words and words[0].startswith("-") and words[0] != "-m":
            if words[0] == "-c":
                return None, []
            del words[: 2 if words[0] in {"-W", "-X"} else 1]
        if words[:1] == ["-m"]:
            module, words = "".join(words[1:2]), words[2:]
            if module.startswith("vllm.entrypoints.cli"):
                return ("vllm" if words[:1] == ["serve"] else None), words[1:]
            known = module.startswith(("vllm.entrypoints.", "sglang.launch_server"))
            return (module.partition(".")[0] if known else None), words
        script = "".join(words[:1])
        if script.endswith(("/vllm/entrypoints/openai/api_server.py", "/sglang/launch_server.py")):
            return ("sglang" if script.endswith("launch_server.py") else "vllm"), words[1:]
    name = PurePath(words[0]).name if words else ""
    if name in {"vllm", "sglang"} and words[1:2] == ["serve"]:
        return name, words[2:]
    return None, []


_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")


def _speculation(words: Sequence[str]) -> dict[str, Any] | None:
    """VLLM's speculative configuration in some words; None where it cannot be read."""
    config: dict[str, Any] = {}
    for flag, value in _flags(words):
        if flag in {"--speculative-config", "-sc"}:
            try:
                config |= {k.replace("-", "_"): v for k, v in json.loads(value).items()}
            except (ValueError, AttributeError):
                return None
        elif flag.startswith("--speculative-config."):
            key = flag.removeprefix("--speculative-config.").replace("-", "_")
            config[key] = _scalar(value)
        elif flag in _VLLM_FLAGS:
            config[_VLLM_FLAGS[flag]] = _scalar(value)
    return config


_VLLM_FLAGS = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}


def _config_words(words: Sequence[str], process: Path | None) -> list[str] | None:
    """What stands in the file of `--config`, as words; None if there is one that is not read."""
    named = [value for flag, value in _flags(words) if flag == "--config"]
    if not named:
        return []
    import yaml

    try:
        path = _seen_by(process, named[-1])
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    if not isinstance(content, dict):
        return None
    found: list[str] = []
    for key, value in content.items():
        if value is None or value is False:
            continue
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        found += [f"--{key}"] if value is True else [f"--{key}", text]
        if key in {"model", "model_tag"}:
            found.append(text)
    return found


def _seen_by(process: Path | None, path: str) -> Path:
    """A path as a process sees it, which may live in another root."""
    if process is None:
        return Path(path)
    return process / "root" / path.lstrip("/") if path.startswith("/") else process / "cwd" / path


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


def _from_model(words: Sequence[str], process: Path | None) -> dict[str, Any]:
    """A Speculators folder given as the model brings its own draft."""
    for word in words:
        path = _seen_by(process, word) / "config.json"
        try:
            if not word.startswith("-") and path.is_file():
                config = json.loads(path.read_text())
                kind = config.get("speculators_model_type") if isinstance(config, dict) else None
                if isinstance(kind, str):
                    method = {"peagle": "p-eagle"}.get(kind, kind)
                    return {"method": method, "draft": word}
            elif "speculator" in word.lower():
                return {}  # perhaps such a folder on a hub: vLLM reads there what it drafts with
        except (OSError, ValueError):
            continue
    return {"method": "none"}


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _from_port(port: int) -> dict[str, Any]:
    process = listening(port)
    if process is None:
        return {}
    if process.command[1:-1] == ["-m", SUPERVISOR]:
        return _deployed(Path(process.command[-1]))
    return from_command(process.command, process.folder)


def _deployed(folder: Path) -> dict[str, Any]:
    """With what a local deployment's engine was started on purpose; empty where it is not told."""
    try:
        wanted = json.loads((folder / "wanted.json").read_text(encoding="utf-8"))
        serve = wanted["serve"]
        engine = next(each for each in wanted["engines"] if each["revision"] == serve)
        words = [str(engine["model"]), *map(str, engine["arguments"])]
    except (OSError, ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return {}
    method = from_command(["vllm", "serve", *words]).get("method")
    return _known(meant=method)


@dataclass(frozen=True, slots=True)
class Listening:
    """A process of this machine."""

    command: list[str]
    folder: Path
    """In /proc."""


def listening(port: int) -> Listening | None:
    """The process on this machine that listens on a TCP port (Linux)."""
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
                return Listening([word.decode("utf-8", "replace") for word in words], process)
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
