"""Words of a recipe or the command line that end up in an object, and what each must look like.

A server would refuse them too, one at a time and hours later.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.model import Recipe


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of word."""

    name: str
    example: str
    fits: Callable[[str], bool]


def _pattern(text: str, longest: int) -> Callable[[str], bool]:
    whole = re.compile(text)
    return lambda word: len(word) <= longest and whole.fullmatch(word) is not None


def _range(word: str) -> bool:
    try:
        ipaddress.ip_network(word)
    except ValueError:
        return False
    return "/" in word


_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME = Kind(
    "name of Kubernetes",
    "small letters, digits, - and .",
    _pattern(rf"{_PART}(\.{_PART})*", 253),
)
LABEL = Kind("DNS label", "small letters, digits and -, 63 at most", _pattern(_PART, 63))
KEY = Kind(
    "label key",
    "example.com/name, 63 characters after the /",
    _pattern(rf"({_PART}(\.{_PART})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?", 317),
)
VALUE = Kind(
    "label value",
    "letters, digits, -, _ and ., 63 at most",
    _pattern(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", 63),
)
SECRET_KEY = Kind("key of a Secret", "token", _pattern(r"[-._a-zA-Z0-9]+", 253))
CIDR = Kind("range of addresses", "write 10.0.0.1/32", _range)
IMAGE = Kind("image", "name:tag or name@sha256:…", _pattern(r"[\w][\w./:@-]*", 1000))
URL = Kind(
    "URL",
    "http://prometheus.monitoring.svc:9090",
    _pattern(r"https?://[^\s/@?#]+(/[^\s@]*)?", 1000),
)
HOST = Kind("host name", "llm.example.com", _pattern(rf"(\*\.)?{_PART}(\.{_PART})*", 253))
GATEWAY = Kind("gateway", "NAME or NAMESPACE/NAME", _pattern(rf"({_PART}/)?{_PART}", 127))

Word = tuple[str, str, Kind]


def recipe_words(recipe: Recipe) -> Iterator[Word]:
    """Key, value and kind of each word of a recipe."""
    engine, storage, scheduling = recipe.engine, recipe.storage, recipe.scheduling
    single: tuple[tuple[str, str | None, Kind], ...] = (
        ("engine.image", engine.image, IMAGE),
        ("storage.image", storage.image, IMAGE),
        ("storage.claim", storage.claim, NAME),
        ("storage.cache_claim", storage.cache_claim, NAME),
        ("storage.class", storage.class_name, NAME),
        ("scheduling.priority_class", scheduling.priority_class, NAME),
        ("scheduling.runtime_class", scheduling.runtime_class, NAME),
        ("network.monitoring", recipe.network.monitoring, LABEL),
    )
    yield from ((key, value, kind) for key, value, kind in single if value)
    several = (
        ("engine.pull_secrets", engine.pull_secrets, NAME),
        ("hardware.products", recipe.hardware.products, VALUE),
        ("network.clients", recipe.network.clients, LABEL),
        ("network.api_server", recipe.network.api_server, CIDR),
        ("network.egress", tuple(each.namespace for each in recipe.network.egress), LABEL),
        ("scheduling.node_selector", tuple(scheduling.node_selector), KEY),
        ("scheduling.node_selector", tuple(scheduling.node_selector.values()), VALUE),
    )
    yield from ((key, value, kind) for key, values, kind in several for value in values)
    for name in ("hf_token", "api_key", "prometheus_token"):
        ref = getattr(recipe.secrets, name)
        if ref is not None:
            yield f"secrets.{name}.name", ref.name, NAME
            yield f"secrets.{name}.key", ref.key, SECRET_KEY


def option_words(options: RenderOptions) -> Iterator[Word]:
    """The same of what was typed."""
    yield "--namespace", options.namespace, LABEL
    yield "--prometheus", options.prometheus, URL
    if options.image is not None:
        yield "--image", options.image, IMAGE
    if options.gateway is not None:
        yield "--gateway", options.gateway, GATEWAY
    yield from (("--hostname", host, HOST) for host in options.hostnames)
    yield from (("--api-server", each, CIDR) for each in options.api_server)
    for key, value in options.monitor_labels.items():
        yield "--label", key, KEY
        yield "--label", value, VALUE
