"""The options that commands share, spelled once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_type_hints

import typer

from speccli import diagnostics
from speccli.core import config
from speccli.core.errors import UsageError
from speccli.core.units import seconds
from speccli.output import Format

FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="Output format.", show_choices=True)
]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Lay a value over the recipe, draft.K=5; repeat for more.",
    ),
]


@dataclass(frozen=True)
class SourceOptions:
    """A source of metrics, and how numbers are made from it. None: not typed."""

    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            "-e",
            metavar="URL",
            help="A server to scrape, http://host:8000; repeat for more.",
        ),
    ] = None
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A Prometheus, Thanos or Mimir that scrapes the fleet."),
    ] = None
    selector: Annotated[
        str | None,
        typer.Option(
            metavar="MATCHERS",
            help="""With --prometheus: the pool, e.g. 'namespace="prod",pool="llama"'.""",
        ),
    ] = None
    deployment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A Kubernetes deployment, read through its API server."),
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="With --deployment: where it is.",
            show_default="the context's",
        ),
    ] = None
    context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --deployment: which context of the kubeconfig.",
            show_default="the current one",
        ),
    ] = None
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --deployment: the kubeconfig.",
            show_default="KUBECONFIG, ~/.kube/config, the pod's account",
        ),
    ] = None
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A recording."),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A profile of specctl.toml."),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How far back numbers look: 30s, 5m, 1h.",
            show_default="10s for status, 60s for top and --prometheus, all of a recording",
        ),
    ] = None
    interval: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time between scrapes.", show_default="1s; 5s with --prometheus"
        ),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Wall clock for one answer.",
            show_default="5s; 10s with --prometheus",
        ),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(help="The method (eagle3, p-eagle, ngram, none), where no server tells it."),
    ] = None
    floor: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Acceptance rate under which a draft is called bad.",
            show_default="0.4",
        ),
    ] = None
    hold: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long it must stay under the floor to be a finding.",
            show_default="1h",
        ),
    ] = None
    gpu_hour_usd: Annotated[
        float | None,
        typer.Option(min=0.0, help="Price of one GPU for an hour, for cost per 1M tokens."),
    ] = None
    gpus_per_engine: Annotated[
        int | None,
        typer.Option(
            min=1, help="GPUs under one engine (tensor x pipeline parallel).", show_default="1"
        ),
    ] = None
    baseline_cost: Annotated[
        float | None,
        typer.Option(min=0.0, help="USD per 1M output tokens without speculation, as measured."),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(help="Bearer token (better: SPECCTL_TOKEN or --token-file)."),
    ] = None
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File with the bearer token."),
    ] = None
    ca: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="CA bundle (PEM)."),
    ] = None
    cert: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Client certificate (PEM)."),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Its private key (PEM)."),
    ] = None
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Accept any certificate."),
    ] = None

    def settings(self) -> config.Settings:
        """The flags over the environment over the profile.

        Raises:
            UsageError: a configuration that cannot be used.
        """
        environment, directory = config.here()
        for note in config.unknown_variables(environment):
            diagnostics.warn(note)
        flags = {field.name: getattr(self, field.name) for field in fields(self)}
        settings = config.load(
            flags, profile=self.profile, environment=environment, directory=directory
        )
        if settings.window and seconds(settings.window, what="--window") <= 0:
            raise UsageError(
                f"--window {settings.window} looks back over nothing", hint="write 30s, 5m or 1h"
            )
        return settings


CLUSTER = frozenset({"deployment", "namespace", "context", "kubeconfig"})
"""Options that say which pods of which cluster are read."""
READS = frozenset(
    {"endpoint", "prometheus", "selector", "replay", "interval", "deadline"}
    | {"token", "token_file", "ca", "cert", "key", "insecure"}
    | CLUSTER
)
"""Options that say what is read, and how."""
JUDGES = frozenset({"floor", "hold"})
"""Options that say what numbers are held against."""
PRICES = frozenset({"gpu_hour_usd", "gpus_per_engine", "baseline_cost"})
"""Options that say what hardware costs."""


def with_source(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command whose first parameter is `SourceOptions` those options as flags."""
    return source_without()(command)


def source_without(
    *names: str, **defaults: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same without options that would do nothing in this command.

    `defaults`: what help shows of options whose default is another one here.
    """
    return with_options(SourceOptions, without=names, defaults=defaults)


def with_options(
    kind: type[Any],
    *,
    without: Collection[str] = (),
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command whose first parameter is a dataclass of options those options as flags."""
    hints = get_type_hints(kind, include_extras=True)
    for name, shown in defaults.items():
        told, option = get_args(hints[name])
        option = copy(option)
        option.show_default = shown
        hints[name] = Annotated[told, option]
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
        if field.name not in without
    ]

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @functools.wraps(command)
        def wrapper(**given: Any) -> Any:
            options = kind(**{each.name: given.pop(each.name) for each in shared})
            return command(options, **given)

        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        del wrapper.__wrapped__  # else the old signature is found
        wrapper.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
        return wrapper

    return give
