"""The rules of `specctl alert rules`, narrowed to one deployment and split by its pools.

They are the fleet's expressions with matchers added to each series, so that a change there is a
change here. Their recorded series have names of their own: the fleet's rules may be installed
beside, and nothing is counted twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from speccli.core.alert.rules.model import Terms
from speccli.core.alert.rules.write import alerting_rules
from speccli.core.cost import Pricing
from speccli.core.findings.base import Thresholds
from speccli.core.kube.proven import LOOKUP
from speccli.core.manifests import names
from speccli.core.manifests.pool_rules import scope
from speccli.core.manifests.pools import Unit
from speccli.core.recipes.model import Recipe
from speccli.core.sources.recorded import recording_rules
from speccli.core.units import seconds

Object = dict[str, Any]

FLEET = "specctl:"
OWN = "specctl_deployment:"

_SERIES = re.compile(
    r"(?<![\w:.])(?P<name>(?:specctl|vllm|sglang):[\w:]+|up\b(?!\())(?:\{(?P<matchers>[^}]*)\})?"
)
_LEVELS = re.compile(r"\b(?P<word>by|on) \((?P<labels>[^)]*)\)")


def terms(recipe: Recipe) -> Terms:
    """What the recipe's alerts are held against."""
    thresholds = Thresholds(
        expect_speculation=recipe.speculates,
        acceptance_floor=recipe.alerts.acceptance_floor,
        hold_s=seconds(recipe.alerts.hold, what="alerts.hold"),
        queue_wait_ms=recipe.alerts.queue_wait_ms,
    )
    return Terms(thresholds, pricing=Pricing(recipe.cost.gpu_hour_usd, recipe.hardware.count))


def alert_groups(units: Sequence[Unit], namespace: str) -> list[Object]:
    """The groups, in the fleet's order."""
    main = units[0]
    matchers = scope(main.deployment, namespace)
    drafting = "|".join(unit.pool for unit in units if unit.recipe.speculates)
    # The floor is of the recipe's draft; what looks up accepts as much as a text repeats itself.
    floored = "|".join(unit.pool for unit in units if unit is main or not _looks_up(unit))
    narrower = {
        "SPEC_NOT_ACTIVE": f'{matchers},{names.POOL_LABEL}=~"{drafting}"',
        "LOW_ACCEPTANCE": f'{matchers},{names.POOL_LABEL}=~"{floored}"',
    }
    found = []
    for group in [*recording_rules()["groups"], *alerting_rules(terms(main.recipe))["groups"]]:
        rules = []
        for rule in group["rules"]:
            told = rule.get("labels", {})
            expression = narrowed(rule["expr"], narrower.get(told.get("code"), matchers))
            # Constants, and what specctl's own watch tells, are nobody's in particular.
            if expression == rule["expr"] or told.get("engine_kind") == "sglang":
                continue
            own = {"record": _own(rule["record"])} if "record" in rule else {}
            rules.append({**rule, **own, "expr": expression})
        if rules:
            name = group["name"].replace("specctl-", f"specctl-{main.deployment}-", 1)
            found.append({**group, "name": name, "rules": rules})
    return found


def _looks_up(unit: Unit) -> bool:
    return unit.recipe.draft.method in LOOKUP


def narrowed(expression: str, matchers: str) -> str:
    """PromQL of the fleet made PromQL of what `matchers` select, pools kept apart."""

    def series(match: re.Match[str]) -> str:
        more = match["matchers"]
        return f"{_own(match['name'])}{{{matchers}{',' + more if more else ''}}}"

    def levels(match: re.Match[str]) -> str:
        labels = [label.strip() for label in match["labels"].split(",") if label.strip()]
        if "namespace" in labels:
            at = labels.index("namespace") + 1
            labels[at:at] = [names.DEPLOYMENT_LABEL, names.POOL_LABEL]
        return f"{match['word']} ({','.join(labels)})"

    scoped = _SERIES.sub(series, expression)
    return expression if scoped == expression else _LEVELS.sub(levels, scoped)


def _own(name: str) -> str:
    return OWN + name.removeprefix(FLEET) if name.startswith(FLEET) else name
