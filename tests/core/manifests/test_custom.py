"""Custom resources against the schemas of the projects that define them."""

from __future__ import annotations

import copy

import pytest

from speccli.core.manifests import objects
from speccli.core.recipes import catalog
from tests.support.crds import FILES, problems
from tests.support.manifests import CUSTOM, HUB, SINCE, VARIANTS, rendered_with

pytestmark = pytest.mark.slow


def test_every_custom_kind_has_a_schema() -> None:
    assert set(FILES) == CUSTOM


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recipes_custom_resources_are_valid(variant: str) -> None:
    held = set()
    for name in catalog.names():
        recipe, options = rendered_with(name, variant, max((1, 30), SINCE.get(variant, (0, 0))))
        for each in objects(recipe, options):
            if each["kind"] in CUSTOM:
                assert problems(each) == []
                held.add(each["kind"])
    assert "PrometheusRule" in held


@pytest.mark.parametrize("kind", sorted(CUSTOM))
def test_the_schemas_are_held_against(kind: str) -> None:
    made = [
        each
        for variant in ("everything", "gateway")
        for each in objects(*rendered_with(HUB, variant, (1, 37)))
    ]
    each = copy.deepcopy(next(each for each in made if each["kind"] == kind))
    assert problems(each) == []
    each["spec"]["unheardOf"] = 1
    assert problems(each) != []
