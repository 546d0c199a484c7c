"""Settings: a typed flag beats the environment, which beats the profile, which beats the default.

`specctl.toml` is looked for in the working directory and its parents, then in the user's
configuration folder; the project's file beats the user's. Top-level keys hold for every profile;
`[profile.NAME]` beats them, wherever it stands, because it was asked for by name.
"""

from __future__ import annotations

import contextlib
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
_OTHER_VARIABLES = frozenset({"PROFILE", "CONFIG", "STATE", "VLLM_PYTHON", "REQUIRE_REAL"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be set by flag, environment variable (`SPECCTL_` + name) or profile key."""

    endpoint: tuple[str, ...] | None = None
    """Servers to scrape directly."""
    prometheus: str | None = None
    """A Prometheus (Thanos, Mimir) to ask instead."""
    selector: str | None = None
    """Label matchers that pick the pool in Prometheus, e.g. `namespace="prod"`."""
    deployment: str | None = None
    """A deployment whose pods are found, and read, through its cluster's API server."""
    namespace: str | None = None
    """Where it is; None: the context's namespace."""
    context: str | None = None
    """Which context of the kubeconfig; None: the current one."""
    kubeconfig: str | None = None
    """The kubeconfig; None: KUBECONFIG, ~/.kube/config, or a pod's own account."""
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
    stalled: str | None = None
    """Time with work and without an output token after which an engine is stalled."""
    baseline: str | None = None
    """Name of the baseline that drift is judged by."""
    drift_every: str | None = None
    """Time of growth that makes one check of drift."""
    drift_min_drafts: float | None = None
    """Drafts that such a check waits for."""
    drift_looks: float | None = None
    """Such checks without a false alarm, on average and at least."""
    drift_margin: float | None = None
    """Fall of the acceptance rate that is in order."""
    slope_fall: float | None = None
    """Fall of the acceptance rate since process start that is a slide."""
    alertmanager: tuple[str, ...] | None = None
    """Alertmanagers that are told what is found."""
    notify: tuple[str, ...] | None = None
    """apprise URLs that are told; secrets, as a rule."""


_DURATIONS = ("interval", "window", "deadline", "hold", "stalled", "drift_every")
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("endpoint", "alertmanager", "notify"), (str, list)),
    "insecure": bool,
    "gpus_per_engine": int,
    **dict.fromkeys(
        ("gpu_hour_usd", "baseline_cost", "floor", "queue_wait_ms", "ttft_p99_ms"), (int, float)
    ),
    **dict.fromkeys(("tpot_p99_ms", "cost_target"), (int, float)),
    **dict.fromkeys(("drift_min_drafts", "drift_looks", "drift_margin"), (int, float)),
    "slope_fall": (int, float),
    **dict.fromkeys(_DURATIONS, (str, int, float)),
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
        UsageError: a configuration file or variable that cannot be used, or a project's file that
            would have a secret that is not its own.
    """
    profile = profile or environment.get(f"{ENVIRONMENT}PROFILE")
    typed = {k: v for k, v in flags.items() if v is not None and v != []}
    merged: dict[str, Any] = {}
    origin: dict[str, Path | str] = {}
    layers: tuple[tuple[Path | str, dict[str, Any]], ...] = (
        *_from_files(profile, environment, directory),
        ("the environment", _from_environment(environment)),
        ("a flag", typed),
    )
    for where, layer in layers:
        _put_over(merged, layer)
        origin |= dict.fromkeys(layer, where)
    project = _project_file(environment, directory)
    if project is not None:
        _keep_secrets(merged, origin, project, directory)
    known = {field.name for field in fields(Settings)}
    merged = {k: v for k, v in merged.items() if k in known}
    for name, between in _LISTS.items():
        if isinstance(merged.get(name), str):
            merged[name] = merged[name].split(between)
        if name in merged:
            merged[name] = tuple(each for part in merged[name] if (each := part.strip()))
    for name, value in merged.items():
        if wrong := _out_of_range(name, value):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{name} is {value!r}; {wrong}", hint=f"give another {flag}")
    return Settings(**merged)


_LISTS: dict[str, str | None] = {"endpoint": ",", "alertmanager": ",", "notify": None}
"""Settings of several values, and what stands between them in one text; None: space."""

_TOGETHER: tuple[tuple[str, ...], ...] = (
    ("endpoint", "prometheus", "replay", "deployment"),
    ("token", "token_file"),
)
"""Settings of which one stands for all: a source that is typed replaces one that is configured."""


def _put_over(merged: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for group in _TOGETHER:
        if any(layer.get(name) is not None for name in group):
            for name in group:
                merged.pop(name, None)
    if layer.get("cert") is not None:
        merged.pop("key", None)  # it belongs to another certificate
    merged.update(layer)


def _keep_secrets(
    merged: Mapping[str, Any], origin: Mapping[str, Path | str], project: Path, directory: Path
) -> None:
    """Refuse to send a token where a file says that merely lies about in the working directory.

    Whoever wrote a repository must not get the token of whoever looks into it, nor any other file
    of theirs: what is typed is meant, what stands in the environment or the user's file is not.
    """
    decides = [n for n in _SENT_BY if merged.get(n) and origin[n] == project]
    own = {project, "a flag"}
    secrets = [n for n in ("token", "token_file") if merged.get(n) and origin[n] not in own]
    for name in ("endpoint", "prometheus"):
        if "@" in str(merged.get(name) or "") and origin[name] not in own:
            secrets.append(name)
    if decides and secrets:
        raise UsageError(
            f"{project} sets {' and '.join(decides)}, and {secrets[0]} is from "
            f"{origin[secrets[0]]}: a secret is not sent on such a file's word",
            hint=f"if you trust it, say so: SPECCTL_CONFIG={project}; else give --endpoint",
        )
    if merged.get("kubeconfig") and origin["kubeconfig"] == project:
        raise UsageError(
            f"{project} sets kubeconfig, which names programs that are run",
            hint=f"if you trust it, say so: SPECCTL_CONFIG={project}; or give --kubeconfig",
        )
    if merged.get("token_file") and origin["token_file"] == project:
        with contextlib.suppress(RuntimeError, OSError, ValueError):
            file = (directory / Path(merged["token_file"]).expanduser()).resolve()
            if file.is_relative_to(project.parent.resolve()):
                return
        raise UsageError(
            f"{project}: token_file lies outside of its folder",
            hint=f"if you trust it, say so: SPECCTL_CONFIG={project}; or give --token-file",
        )


_SENT_BY = ("endpoint", "prometheus", "insecure", "ca")
"""Settings that decide who gets to see a token."""


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A note for each `SPECCTL_*` variable that means nothing."""
    known = {field.name.upper() for field in fields(Settings)} | _OTHER_VARIABLES
    notes = []
    for name in sorted(environment):
        setting = name.removeprefix(ENVIRONMENT)
        if setting != name and setting not in known:
            notes.append(f"{name} is not a setting{_nearest(setting, known, ENVIRONMENT)}")
    return notes


def config_files(environment: Mapping[str, str], directory: Path) -> list[Path]:
    """The files that would be read, the user's first, so that the project's beats it."""
    if named := environment.get(f"{ENVIRONMENT}CONFIG"):
        return [Path(named)]
    found = [_users_file(environment), _nearest_file(directory)]
    return [path for path in dict.fromkeys(found) if path is not None and _is_there(path)]


def _users_file(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("HOME")
    user = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    return Path(user) / "specctl" / FILE if user else None


def _nearest_file(directory: Path) -> Path | None:
    """The one in the working directory or the nearest folder above."""
    folders = (directory, *directory.parents)
    return next((folder / FILE for folder in folders if _is_there(folder / FILE)), None)


def _project_file(environment: Mapping[str, str], directory: Path) -> Path | None:
    """A file that nobody named and that is not the user's."""
    if environment.get(f"{ENVIRONMENT}CONFIG"):
        return None
    found = _nearest_file(directory)
    return found if found != _users_file(environment) else None


def _is_there(path: Path) -> bool:
    """Whether there is such a file; a folder that may not be looked into holds none."""
    with contextlib.suppress(OSError):
        return path.is_file()
    return False


def _from_files(
    profile: str | None, environment: Mapping[str, str], directory: Path
) -> list[tuple[Path, dict[str, Any]]]:
    """The layers of the files, weakest first: what holds for all of each, then the profile."""
    common: list[tuple[Path, dict[str, Any]]] = []
    named: list[tuple[Path, dict[str, Any]]] = []
    profiles: set[str] = set()
    for path in config_files(environment, directory):
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{path} is not TOML: {error}") from error
        tables = content.pop("profile", {})
        if not isinstance(tables, dict):
            raise UsageError(f"{path}: profile must be a table", hint="write [profile.prod]")
        profiles |= set(tables)
        common.append((path, _checked(content, path, "")))
        checked = {name: _checked(t, path, f"profile.{name}.") for name, t in tables.items()}
        if profile in checked:
            named.append((path, checked[profile]))
    if profile and profile not in profiles:
        raise UsageError(
            f"no profile {profile!r} in {FILE}{_nearest(profile, profiles)}",
            hint=f"add [profile.{profile}] to {FILE}",
        )
    return [*common, *named]


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
            shown = "…" if name in {"token", "notify"} else repr(value)
            raise UsageError(f"{path}: {prefix}{raw} is {shown}; it must be {allowed}")
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            raise UsageError(f"{path}: {prefix}{raw} must be a list of strings")
        if wrong := _out_of_range(name, value):
            raise UsageError(f"{path}: {prefix}{raw} is {value!r}; {wrong}")
        values[name] = str(value) if name in _DURATIONS else value
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields(Settings):
        variable = f"{ENVIRONMENT}{field.name.upper()}"
        text = environment.get(variable)
        if text is None or text == "":
            continue
        wanted, kind = _TYPES.get(field.name, str), "text"
        try:
            if wanted is bool:
                kind = "1 or 0"
                values[field.name] = _SWITCH[text.strip().lower()]
            elif wanted is int:
                kind = "a whole number"
                values[field.name] = int(text)
            elif wanted == (int, float):
                kind = "a number"
                values[field.name] = float(text)
            else:
                values[field.name] = text
        except (KeyError, ValueError) as error:
            raise UsageError(f"{variable}={text!r}: it must be {kind}") from error
        if wrong := _out_of_range(field.name, values[field.name]):
            raise UsageError(f"{variable}={text!r}: {wrong}")
    return values


_SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_AT_MOST = {"floor": 1.0, "drift_margin": 1.0, "slope_fall": 1.0}
_AT_LEAST = {"gpus_per_engine": 1, "drift_min_drafts": 1, "drift_looks": 1}


FREE = "a price is above 0 (leave it out where it is not known)"


def _out_of_range(name: str, value: Any) -> str | None:
    """What is wrong with a number, whoever gave it; None if nothing is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if name == "gpu_hour_usd" and value == 0:
        return FREE
    low, high = _AT_LEAST.get(name, 0), _AT_MOST.get(name, 1e15)
    if low <= value <= high:  # not NaN either
        return None
    if name in _AT_MOST:
        return f"it must be from {low:g} to {high:g}"
    return f"it must be a number of at least {low:g}" if value < low else "it must be finite"


def _nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{match[0]}?" if match else ""


def here() -> tuple[Mapping[str, str], Path]:
    """The environment and working directory of this process."""
    try:
        return os.environ, Path.cwd()
    except OSError:  # it was removed: no project file is there
        return os.environ, Path("/")
