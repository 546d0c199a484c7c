"""Which cluster, as whom: the kubeconfig, read as kubectl reads it.

Files are merged as kubectl merges them: the first that names something wins. What a context needs
is checked here, so that a mistake is named with its file.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speccli.core.errors import UsageError

_PATHS = (
    ("cluster", ("certificate-authority",)),
    ("user", ("client-certificate", "client-key", "tokenFile")),
)
"""Entries that are paths, relative to the file that has them."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One context with its cluster and user; paths in them are absolute."""

    context: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    user_name: str | None
    namespace: str | None
    file: Path
    """The file that has the user (else the cluster): plugins run relative to its folder."""

    @property
    def server(self) -> str:
        """Its URL."""
        return str(self.cluster["server"]).rstrip("/")


@dataclass(slots=True)
class _Merged:
    """Named entries, each with the file it is from."""

    files: list[Path] = field(default_factory=list)
    current: str | None = None
    entries: dict[str, dict[str, tuple[dict[str, Any], Path]]] = field(
        default_factory=lambda: {"contexts": {}, "clusters": {}, "users": {}}
    )


def kubeconfig_files(given: str | None, environment: Mapping[str, str]) -> list[Path]:
    """Where kubeconfigs would be: `--kubeconfig`, else KUBECONFIG, else ~/.kube/config.

    Raises:
        UsageError: what was given is not there.
    """
    if given:
        path = _expanded(given)
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is not there"
            raise UsageError(f"kubeconfig {given} {what}", hint="check --kubeconfig")
        return [path]
    if named := environment.get("KUBECONFIG"):
        every = [_expanded(each) for each in named.split(os.pathsep) if each]
        there = [path for path in every if path.is_file()]
        if not there:
            raise UsageError(f"KUBECONFIG names {named}, and nothing is there", hint="unset it?")
        return there
    home = environment.get("HOME")
    usual = Path(home) / ".kube" / "config" if home else None
    return [usual] if usual and usual.is_file() else []


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"kubeconfig {text}: {error}") from error


def choose(files: Sequence[Path], context: str | None) -> Chosen:
    """The context asked for, or the current one.

    Raises:
        UsageError: a file that cannot be read or is no kubeconfig, or a context that is not in it.
    """
    merged = _Merged()
    for path in files:
        _merge(merged, path)
    where = " and ".join(map(str, merged.files))
    name = context or merged.current
    if not name:
        known = _known(merged.entries["contexts"])
        raise UsageError(f"{where} sets no current-context", hint=f"give --context{known}")
    chosen, _ = _entry(merged, "contexts", name, where, "--context")
    cluster_name = chosen.get("cluster")
    if not isinstance(cluster_name, str) or not cluster_name:
        raise UsageError(f"{where}: context {name} names no cluster")
    cluster, file = _entry(merged, "clusters", cluster_name, where, f"context {name}")
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise UsageError(f"{file}: cluster {cluster_name} has no server that is an http(s) URL")
    user_name = chosen.get("user") or None
    user: dict[str, Any] = {}
    if user_name:
        user, file = _entry(merged, "users", str(user_name), where, f"context {name}")
    namespace = chosen.get("namespace")
    return Chosen(name, cluster, user, user_name, str(namespace) if namespace else None, file)


def _merge(merged: _Merged, path: Path) -> None:
    content = _read(path)
    merged.files.append(path)
    current = content.get("current-context")
    if merged.current is None and isinstance(current, str) and current:
        merged.current = current
    for section, kind in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
        listed = content.get(section) or []
        if not isinstance(listed, list):
            raise UsageError(f"{path}: {section} must be a list")
        for each in listed:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise UsageError(f"{path}: an entry of {section} has no name")
            value = each.get(kind)
            if value is not None and not isinstance(value, dict):
                raise UsageError(f"{path}: {kind} {each['name']} must be a mapping")
            resolved = _with_paths(kind, value or {}, path.parent)
            merged.entries[section].setdefault(each["name"], (resolved, path))


def _with_paths(kind: str, value: dict[str, Any], folder: Path) -> dict[str, Any]:
    value = dict(value)
    for section, names in _PATHS:
        for name in names if section == kind else ():
            if isinstance(value.get(name), str) and value[name]:
                value[name] = str(folder / Path(value[name]).expanduser())
    return value


def _read(path: Path) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # hundreds of contexts take seconds else
    try:
        content = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise UsageError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or "it cannot be read"
        raise UsageError(f"kubeconfig {path}{line} is not YAML: {why}") from error
    if content is None:
        raise UsageError(f"kubeconfig {path} is empty")
    if not isinstance(content, dict):
        raise UsageError(f"kubeconfig {path} is not a kubeconfig: it must be a mapping")
    return content


def _entry(
    merged: _Merged, section: str, name: str, where: str, by: str
) -> tuple[dict[str, Any], Path]:
    found = merged.entries[section].get(name)
    if found is None:
        raise UsageError(
            f"{where}: no {section[:-1]} {name}, which {by} names"
            if by != "--context"
            else f"no context {name} in {where}",
            hint=_nearest(name, merged.entries[section]),
        )
    return found


def _nearest(name: str, known: Mapping[str, Any]) -> str | None:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"there {'is' if len(known) == 1 else 'are'}{_known(known)[1:]}" if known else None


def _known(known: Mapping[str, Any]) -> str:
    names = sorted(known)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f": {', '.join(names[:5])}{more}" if names else ""
