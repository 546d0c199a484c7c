"""Every object of a deployment, in the order in which they must be applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from speccli.core.manifests import claims, gateway, monitoring, scaling, volumes, workload
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.pools import Unit, units
from speccli.core.recipes.model import Recipe

Object = dict[str, Any]

_DEFAULT = RenderOptions()


def objects(recipe: Recipe, options: RenderOptions = _DEFAULT) -> list[Object]:
    """What runs the recipe, as new dictionaries, in the order in which to apply them.

    Pure: the same for the same arguments, whatever the environment. No network.

    Raises:
        UsageError: the recipe cannot be rendered, or not for this server, with the key to change.
        LintError: a bug of specctl: an object that a server would refuse or never obey.
    """
    from speccli.core.manifests.lint import lint

    made = list(_objects(units(recipe, options), options))
    lint(made)
    return made


def _objects(found: Sequence[Unit], options: RenderOptions) -> Iterator[Object]:
    main = found[0]
    if options.create_namespace:
        yield workload.namespace(main, options)
    yield from workload.priority_classes(list(found), options)
    yield workload.account(main, options)
    yield from volumes.claims(main, options.namespace, shared=_pods(found) > 1)
    if options.dra:
        yield from (claims.claim_template(unit, options) for unit in found)
    yield workload.network_policy(main, options)
    yield from _some(workload.service(unit, options) for unit in found)
    yield from (workload.budget(unit, options) for unit in found)
    yield from (workload.deployment(unit, options) for unit in found)
    if options.monitoring:
        yield monitoring.pod_monitor(main, options)
        if options.rules != "none":
            yield monitoring.prometheus_rule(found, options)
    yield from _scalers(found, options)
    if options.inference_pool:
        yield from _some(gateway.inference_pool(unit, options) for unit in found)
    if options.gateway:
        yield gateway.route(found, options)


def _scalers(found: Sequence[Unit], options: RenderOptions) -> Iterator[Object]:
    scaled = [unit for unit in found if unit.autoscaled]
    if options.autoscaler == "hpa":
        yield from (scaling.autoscaler(unit, options) for unit in scaled)
    elif options.autoscaler == "keda":
        yield from _some([scaling.trigger_authentication(found[0], options)])
        yield from (scaling.scaled_object(unit, options) for unit in scaled)


def _pods(found: Sequence[Unit]) -> int:
    """How many pods there may be at once."""
    return sum(unit.most if unit.autoscaled else unit.least for unit in found)


def _some(found: Iterator[Object | None] | list[Object | None]) -> Iterator[Object]:
    yield from (each for each in found if each is not None)
