"""One rendering of each kind, byte for byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speccli.core.manifests import objects
from speccli.core.manifests.render import yaml_text
from speccli.core.manifests.scaling import adapter_values
from tests.support.golden import assert_golden
from tests.support.manifests import HUB, rendered_with

WHERE = {
    "Namespace": "fixed",
    "PriorityClass": "pools",
    "ServiceAccount": "default",
    "PersistentVolumeClaim": "default",
    "ResourceClaimTemplate": "dra",
    "NetworkPolicy": "everything",
    "Service": "pools",
    "PodDisruptionBudget": "default",
    "Deployment": "pools",
    "PodMonitor": "everything",
    "PrometheusRule": "default",
    "TriggerAuthentication": "everything",
    "ScaledObject": "everything",
    "HorizontalPodAutoscaler": "hpa",
    "InferencePool": "gateway",
    "HTTPRoute": "gateway",
}


@pytest.mark.parametrize("kind", WHERE)
def test_a_kind_is_as_it_was(kind: str) -> None:
    recipe, options = rendered_with(HUB, WHERE[kind], (1, 37))
    # Alerts have tests of their own: their wording is not the manifests'.
    made = objects(recipe, replace(options, rules="scaling"))
    texts = [yaml_text(each) for each in made if each["kind"] == kind]
    assert_golden(f"manifests/{kind.lower()}.yaml", "---\n".join(texts))


MOVED = ("Service", "HTTPRoute", "InferencePool", "ScaledObject")


@pytest.mark.parametrize("kind", MOVED)
def test_a_kind_is_as_it_was_where_the_standby_serves(kind: str) -> None:
    made = objects(*rendered_with(HUB, "moved", (1, 37)))
    texts = [yaml_text(each) for each in made if each["kind"] == kind]
    assert_golden(f"manifests/moved-{kind.lower()}.yaml", "---\n".join(texts))


def test_the_adapters_values_are_as_they_were() -> None:
    assert_golden("manifests/prometheus-adapter-values.yaml", yaml_text(adapter_values()))


def test_every_kind_has_one() -> None:
    variants = {*WHERE.values(), "everything"}
    made = [each for v in variants for each in objects(*rendered_with(HUB, v, (1, 37)))]
    assert {each["kind"] for each in made} == set(WHERE)
