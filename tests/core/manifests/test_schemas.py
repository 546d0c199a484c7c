"""Every rendering is what API servers of 1.29 to 1.37 take, unknown fields refused."""

from __future__ import annotations

import copy

import pytest
from kubernetes_validate import ValidationError

from speccli.core.manifests import RenderOptions, objects
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load
from tests.support.manifests import (
    CUSTOM,
    HUB,
    SERVERS,
    SINCE,
    VARIANTS,
    rendered_with,
    validate,
    validate_new,
)


@pytest.mark.parametrize("server", [SERVERS[0], SERVERS[-1]], ids=["1.29", "1.37"])
@pytest.mark.parametrize("variant", ["default", "everything"])
def test_a_rendering_is_valid(variant: str, server: tuple[int, int]) -> None:
    recipe, options = rendered_with(HUB, variant, server)
    made = [each for each in objects(recipe, options) if each["kind"] not in CUSTOM]
    assert made
    for each in made:
        validate(each, server)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "server"),
    [
        pytest.param(variant, server, id=f"{variant}-1.{server[1]}")
        for variant in VARIANTS
        for server in SERVERS
        if server >= SINCE.get(variant, SERVERS[0])  # test_refusals has the older ones
    ],
)
def test_every_recipe_is_valid_on_every_server(variant: str, server: tuple[int, int]) -> None:
    for name in catalog.names():
        recipe, options = rendered_with(name, variant, server)
        validate_new(objects(recipe, options), server)


def test_the_schemas_are_held_against() -> None:
    made = objects(load(HUB), RenderOptions())
    deployment = next(each for each in made if each["kind"] == "Deployment")
    for path, value in (
        (("spec", "template", "spec", "enableServiceLink"), False),
        (("spec", "progressDeadlineSeconds"), "1800"),
    ):
        wrong = copy.deepcopy(deployment)
        inner = wrong
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        with pytest.raises(ValidationError):
            validate(wrong, (1, 37))


@pytest.mark.parametrize(
    ("field", "server", "changes", "options"),
    [
        pytest.param("tolerance", (1, 32), ["scaling.tolerance=0.2"], {}, id="tolerance"),
        pytest.param("sleep", (1, 29), [], {}, id="sleep-is-off-in-1.29"),
    ],
)
def test_fields_that_a_server_does_not_know_are_left_out(
    field: str, server: tuple[int, int], changes: list[str], options: dict[str, object]
) -> None:
    def told(version: tuple[int, int]) -> str:
        return str(objects(load(HUB, changes), RenderOptions(kubernetes=version)))

    assert f"'{field}': " not in told(server)
    assert f"'{field}': " in told((server[0], server[1] + 1))
