"""Settings: a typed flag beats the environment, which beats the profile, which beats the default.

`specctl.toml` is looked for in the working directory and its parents, then in the user's
configuration folder. Top-level keys hold for every profile; `[profile.NAME]` adds to them.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from speccli.core.errors import UsageError

FILE = "specctl.toml"
ENVIRONMENT = "SPECCTL_"
_OTHER_VARIABLES = frozenset({"PROFILE", "CONFIG", "VLLM_PYTHON", "REQUIRE_REAL"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be set by flag, environment variable (`SPECCTL_` + name) or profile key."""

    endpoint: tuple[str, ...] | None = None
    """Servers to scrape directly."""
    prometheus: str | None = None
    """A Prometheus (Thanos, Mimir) to ask instead."""
    selector: str | None = None
    """Label matchers that pick the pool in Prometheus, e.g. `namespace="prod"`."""
    interval: str | None = None
    """Time between scrapes."""
    window: str | None = None
    """How far back a number looks."""
    deadline: str | None = None
    """Wall clock for one answer."""
    token: str | None = None
    token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool | None = None
    method: str | None = None
    """The speculation method, where no server tells it."""
    gpu_hour_usd: float | None = None
    gpus_per_engine: int | None = None
    baseline_cost: float | None = None
    """USD per 1M output tokens of the same pool without speculation, as measured."""
    floor: float | None = None
    """Acceptance rate under which a draft is called bad."""
    hold: str | None = None
    """How long it must stay there before it is an alarm."""
    queue_wait_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None
    cost_target: float | None = None


_TYPES: dict[str, type | tuple[type, ...]] = {
    "endpoint": (str, list),
    "insecure": bool,
    "gpus_per_engine": int,
    **dict.fromkeys(
        ("gpu_hour_usd", "baseline_cost", "floor", "queue_wait_ms", "ttft_p99_ms"), (int, float)
    ),
    **dict.fromkeys(("tpot_p99_ms", "cost_target"), (int, float)),
    **dict.fromkeys(("interval", "window", "deadline", "hold"), (str, int, float)),
}


def load(
    flags: Mapping[str, Any],
    *,
    profile: str | None,
    environment: Mapping[str, str],
    directory: Path,
) -> Settings:
    """Flags over environment over profile.

    Raises:
        UsageError: a configuration file or variable that cannot be used.
    """
    profile = profile or environment.get(f"{ENVIRONMENT}PROFILE")
    merged = _from_files(profile, environment, directory)
    merged |= _from_environment(environment)
    typed = {k: v for k, v in flags.items() if v is not None and v != []}
    # A source that is typed replaces one that is configured, rather than joining it.
    if "endpoint" in typed or "prometheus" in typed or flags.get("replay"):
        merged.pop("endpoint", None)
        merged.pop("prometheus", None)
    known = {field.name for field in fields(Settings)}
    merged |= {k: v for k, v in typed.items() if k in known}
    if isinstance(merged.get("endpoint"), str):
        merged["endpoint"] = [part for part in merged["endpoint"].split(",") if part.strip()]
    if "endpoint" in merged:
        merged["endpoint"] = tuple(merged["endpoint"])
    return Settings(**merged)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A note for each `SPECCTL_*` variable that means nothing."""
    known = {f"{ENVIRONMENT}{field.name.upper()}" for field in fields(Settings)}
    known |= {f"{ENVIRONMENT}{name}" for name in _OTHER_VARIABLES}
    return [
        f"{name} is not a setting{_nearest(name, known)}"
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT) and name not in known
    ]


def config_files(environment: Mapping[str, str], directory: Path) -> list[Path]:
    """The files that would be read, the user's first, so that the project's beats it."""
    if named := environment.get(f"{ENVIRONMENT}CONFIG"):
        return [Path(named)]
    home = Path(
        environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")) / ".config"
    )
    found = [home.expanduser() / "specctl" / FILE]
    for folder in (directory, *directory.parents):
        if (folder / FILE).is_file():
            found.append(folder / FILE)
            break
    return [path for path in found if path.is_file()]


def _from_files(
    profile: str | None, environment: Mapping[str, str], directory: Path
) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    profiles: set[str] = set()
    for path in config_files(environment, directory):
        try:
            content = tomllib.loads(path.read_text())
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not TOML: {error}") from error
        tables = content.pop("profile", {})
        if not isinstance(tables, dict):
            raise UsageError(f"{path}: profile must be a table", hint="write [profile.prod]")
        profiles |= set(tables)
        merged |= _checked(content, path, "")
        if profile in tables:
            merged |= _checked(tables[profile], path, f"profile.{profile}.")
    if profile and profile not in profiles:
        raise UsageError(
            f"no profile {profile!r} in {FILE}{_nearest(profile, profiles)}",
            hint=f"add [profile.{profile}] to {FILE}",
        )
    return merged


def _checked(table: Any, path: Path, prefix: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {prefix.rstrip('.')} must be a table")
    known = {field.name for field in fields(Settings)}
    values: dict[str, Any] = {}
    for raw, value in table.items():
        name = raw.replace("-", "_")
        if name not in known:
            raise UsageError(f"{path}: unknown key {prefix}{raw}{_nearest(name, known)}")
        wanted = _TYPES.get(name, str)
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            kinds = wanted if isinstance(wanted, tuple) else (wanted,)
            allowed = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"{path}: {prefix}{raw} is {value!r}; it must be {allowed}")
        numeric = name in {"interval", "window", "deadline", "hold"}
        values[name] = str(value) if numeric else value
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields(Settings):
        variable = f"{ENVIRONMENT}{field.name.upper()}"
        text = environment.get(variable)
        if text is None or text == "":
            continue
        wanted = _TYPES.get(field.name, str)
        try:
            if wanted is bool:
                values[field.name] = {"1": True, "true": True, "0": False, "false": False}[
                    text.lower()
                ]
            elif wanted is int:
                values[field.name] = int(text)
            elif wanted == (int, float):
                values[field.name] = float(text)
            else:
                values[field.name] = text
        except (KeyError, ValueError) as error:
            raise UsageError(f"{variable}={text!r} cannot be read as its type") from error
    return values


def _nearest(name: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {match[0]}?" if match else ""


def here() -> tuple[Mapping[str, str], Path]:
    """The environment and working directory of this process."""
    return os.environ, Path.cwd()
