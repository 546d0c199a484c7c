"""What is rendered: pure, in order, the plan's own line, no secret, the traps avoided."""

from __future__ import annotations

import copy
import json
import os
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccli.core.manifests import RenderOptions, objects
from speccli.core.manifests.render import files, render, stream, yaml_text
from speccli.core.plan import plan
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load
from tests.support.manifests import HUB, VARIANTS, rendered_with

Object = dict[str, Any]


def made(variant: str = "default", *changes: str, **more: Any) -> list[Object]:
    recipe, options = rendered_with(HUB, variant, (1, 37))
    if changes:
        recipe = load(HUB, [*VARIANTS[variant][1], *changes])
    return objects(recipe, replace(options, **more))


def of(kind: str, rendering: list[Object], name: str | None = None) -> Object:
    return next(
        each
        for each in rendering
        if each["kind"] == kind and name in {None, each["metadata"]["name"]}
    )


def engine(deployment: Object) -> Object:
    return deployment["spec"]["template"]["spec"]["containers"][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("recipe", catalog.names())
def test_the_containers_line_is_the_plans(recipe: str) -> None:
    container = engine(of("Deployment", objects(load(recipe))))
    line = (*container["command"], *container["args"])
    assert line == plan(load(recipe)).line.command
    assert container["command"][:2] == ["vllm", "serve"]


def test_words_reach_the_engine_as_they_are() -> None:
    container = engine(
        of(
            "Deployment",
            made("default", "engine.extra_args=[--x=$(HOME), '--host=::']", "engine.env.A=$(HOME)"),
        )
    )
    assert container["args"][-2:] == ["--x=$$(HOME)", "--host=::"]
    assert {"name": "A", "value": "$$(HOME)"} in container["env"]


def test_a_switch_is_no_secret() -> None:
    container = engine(
        of("Deployment", made("default", "engine.env.HF_HUB_DISABLE_IMPLICIT_TOKEN=1"))
    )
    assert {"name": "HF_HUB_DISABLE_IMPLICIT_TOKEN", "value": "1"} in container["env"]


def test_each_call_makes_the_same_anew() -> None:
    recipe, options = rendered_with(HUB, "everything", (1, 37))
    before, kept = objects(recipe, options), copy.deepcopy(recipe)
    first = json.dumps(before)
    for each in before:
        each.clear()
    assert json.dumps(objects(recipe, options)) == first
    assert recipe == kept


@given(st.permutations(sorted(VARIANTS)))
@settings(max_examples=3, deadline=None)
def test_no_rendering_depends_on_those_before_it(order: list[str]) -> None:
    alone = {"default": json.dumps(made("default")), "everything": json.dumps(made("everything"))}
    for variant in order:
        text = json.dumps(made(variant))
        assert alone.setdefault(variant, text) == text


def test_the_order_of_a_recipes_keys_changes_nothing() -> None:
    changes = ["serving.max_num_seqs=32", "scaling.max=2", "engine.env={B: '1'}"]
    one, other = (stream(objects(load(HUB, order))) for order in (changes, changes[::-1]))
    assert one == other


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z][A-Z0-9_]{2,20}", fullmatch=True),
        st.from_regex(r"S3CRET[a-zA-Z0-9]{12}", fullmatch=True),
        max_size=6,
    )
)
@settings(max_examples=5, deadline=None)
def test_no_value_of_the_environment_is_in_any_output(values: dict[str, str]) -> None:
    named = {
        "HF_TOKEN": "S3CREThubtokenhere",
        "VLLM_API_KEY": "S3CRETapikeyhere00",
        "SPECCTL_TOKEN": "S3CRETspecctltoken",
        "OPENAI_API_KEY": "S3CRETotherkey0000",
    }
    held = dict(os.environ)
    try:
        os.environ.update({**values, **named})
        recipe, options = rendered_with(HUB, "everything", (1, 37))
        rendering = render(recipe, options)
        text = "".join([*files(rendering).values(), json.dumps(list(rendering.objects))])
    finally:
        os.environ.clear()
        os.environ.update(held)
    assert "S3CRET" not in text
    assert "Secret" not in {each["kind"] for each in rendering.objects}


def test_secrets_are_referred_to() -> None:
    told = {each["name"]: each for each in engine(of("Deployment", made("everything")))["env"]}
    key = {"name": "vllm-api-key", "key": "token"}
    assert told["VLLM_API_KEY"]["valueFrom"]["secretKeyRef"] == key
    assert told["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "hub", "key": "token"}
    guessed = {each["name"]: each for each in engine(of("Deployment", made()))["env"]}
    assert guessed["HF_TOKEN"]["valueFrom"]["secretKeyRef"]["optional"] is True
    assert "VLLM_API_KEY" not in guessed


def test_what_is_needed_comes_before_what_needs_it() -> None:
    kinds = [each["kind"] for each in made("everything", create_namespace=True)]
    order = ("Namespace", "ServiceAccount", "PersistentVolumeClaim", "NetworkPolicy", "Deployment")
    assert [*dict.fromkeys(kind for kind in kinds if kind in order)] == [*order]
    assert kinds.index("PrometheusRule") < kinds.index("ScaledObject")


def test_an_autoscaled_pool_tells_no_replicas_and_a_fixed_one_does() -> None:
    assert "replicas" not in of("Deployment", made())["spec"]
    assert of("Deployment", made("fixed"))["spec"]["replicas"] == 1
    assert of("Deployment", made("fixed", replicas=3))["spec"]["replicas"] == 3
    canary = of("Deployment", made("pools"), "llama-3-3-70b-eagle3-h100-canary")
    assert canary["spec"]["replicas"] == 1


@pytest.mark.parametrize("recipe", catalog.names())
def test_a_pod_is_killed_only_after_its_drain(recipe: str) -> None:
    deployment = of("Deployment", objects(load(recipe)))
    spec = deployment["spec"]["template"]["spec"]
    words = engine(deployment)["args"]
    drain = int(words[words.index("--shutdown-timeout") + 1])
    before = engine(deployment)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] >= before + drain + 15


def test_an_engine_without_a_drain_gets_none() -> None:
    deployment = of("Deployment", made("default", "engine.version=0.17.1"))
    assert "--shutdown-timeout" not in engine(deployment)["args"]
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 45


def startup(*changes: str) -> tuple[int, int]:
    deployment = of("Deployment", made("default", *changes))
    probe = engine(deployment)["startupProbe"]
    return (
        probe["periodSeconds"] * probe["failureThreshold"],
        deployment["spec"]["progressDeadlineSeconds"],
    )


def test_the_startup_probe_grows_with_the_weights() -> None:
    large, progress = startup()
    small, _ = startup("target.model=Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", "draft.method=none")
    fast, _ = startup("storage.read_mb_s=2000")
    # 420 s, and 72.7 + 1.9 GB at 100 MB/s, in whole minutes.
    assert (large, small, fast) == (1200, 780, 600)
    assert startup("serving.startup_timeout_s=95")[0] == 100
    assert progress > large + 600


def test_loading_pods_are_not_scaled_in() -> None:
    behavior = of("ScaledObject", made())["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
    window = behavior["behavior"]["scaleDown"]["stabilizationWindowSeconds"]
    assert window >= startup()[0]


def test_the_structured_pool_has_its_own_name_and_no_draft() -> None:
    rendering = made("pools")
    structured = engine(of("Deployment", rendering, "llama-3-3-70b-eagle3-h100-structured"))
    words = structured["args"]
    assert words[words.index("--served-model-name") + 1] == "llama-3.3-70b-structured"
    assert "--speculative-config" not in words
    ngram = engine(
        of(
            "Deployment",
            made("pools", "pools.structured.draft={method: ngram, K: 4, prompt_lookup_max: 4}"),
            "llama-3-3-70b-eagle3-h100-structured",
        )
    )
    assert '"method":"ngram"' in " ".join(ngram["args"])


def test_the_canary_takes_a_share_of_the_main_pools_traffic_and_the_structured_pool_none() -> None:
    rendering = made("pools")
    service = of("Service", rendering)["spec"]["selector"]
    pods = {
        each["metadata"]["labels"]["specctl.dev/pool"]: each["spec"]["template"]["metadata"][
            "labels"
        ]
        for each in rendering
        if each["kind"] == "Deployment"
    }
    taken = {pool for pool, labels in pods.items() if service.items() <= labels.items()}
    assert taken == {"main", "canary"}
    assert len([each for each in rendering if each["kind"] == "Service"]) == 2


def taken_by(rendering: list[Object], service: str) -> set[str]:
    """The pools that a Service leads to."""
    wanted = of("Service", rendering, service)["spec"]["selector"]
    templates = [each["spec"]["template"] for each in rendering if each["kind"] == "Deployment"]
    pods = [template["metadata"]["labels"] for template in templates]
    return {labels["specctl.dev/pool"] for labels in pods if wanted.items() <= labels.items()}


NAME = "llama-3-3-70b-eagle3-h100"


def test_a_standby_is_warm_and_takes_nothing_until_the_traffic_is_its() -> None:
    pools = ("canary", "standby")
    before = made("default", pools=pools)
    assert taken_by(before, NAME) == {"main", "canary"}
    assert taken_by(before, f"{NAME}-standby") == {"standby"}
    after = made("default", pools=pools, traffic="standby")
    assert taken_by(after, NAME) == {"standby", "canary"}


def test_a_switch_restarts_no_pod() -> None:
    options: list[dict[str, Any]] = [
        {"traffic": "main"},
        {"traffic": "standby", "raised": {"standby": 3}},
    ]
    before, after = (made("gateway", pools=("structured", "standby"), **each) for each in options)
    changed = [b["kind"] for a, b in zip(before, after, strict=True) if a != b]
    assert changed == ["Service", "ScaledObject", "HTTPRoute"]


def test_a_routes_weights_are_with_the_pool_that_serves() -> None:
    def weights(**more: Any) -> dict[str, int]:
        rule = of("HTTPRoute", made("gateway", pools=("standby",), **more))["spec"]["rules"][-1]
        return {each["name"]: each["weight"] for each in rule["backendRefs"]}

    assert weights() == {NAME: 1, f"{NAME}-standby": 0}
    assert weights(traffic="standby") == {NAME: 0, f"{NAME}-standby": 1}
    # A Service leads to the pool that serves by itself.
    assert weights(traffic="standby", inference_pool=False) == {NAME: 1}


@pytest.mark.parametrize(
    ("changes", "method", "k"),
    [
        pytest.param((), "ngram", 3, id="n-gram-of-itself"),
        pytest.param(("fallback.standby=none",), None, None, id="off"),
        pytest.param(
            ("fallback.rungs=[{method: ngram, K: 2}, {method: none}]",), "ngram", 3, id="not-asked"
        ),
        pytest.param(
            ("fallback.rungs=[{method: ngram, K: 2}]", "fallback.standby=ngram"),
            "ngram",
            2,
            id="the-rungs-K",
        ),
        pytest.param(
            (
                "fallback.rungs=[{method: draft_model, model: meta-llama/Llama-3.2-1B, K: 4}]",
                "fallback.standby=draft_model",
            ),
            "draft_model",
            4,
            id="a-draft-of-its-own",
        ),
        pytest.param(("pools.standby.draft={method: none}",), None, None, id="the-pools-own"),
    ],
)
def test_a_standby_drafts_as_its_rung_says(
    changes: tuple[str, ...], method: str | None, k: int | None
) -> None:
    standby = of("Deployment", made("default", *changes, pools=("standby",)), f"{NAME}-standby")
    words = engine(standby)["args"]
    if method is None:
        assert "--speculative-config" not in words
    else:
        told = json.loads(words[words.index("--speculative-config") + 1])
        assert (told["method"], told["num_speculative_tokens"]) == (method, k)


def test_the_floor_of_the_recipes_draft_is_not_held_against_an_n_gram_standby() -> None:
    def pools(code: str) -> set[str]:
        groups = of("PrometheusRule", made("default", pools=("standby",)))["spec"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        told = [rule["expr"] for rule in rules if rule.get("labels", {}).get("code") == code]
        return {part for each in told for part in re.findall(r'pool=~"([^"]*)"', each)}

    assert pools("LOW_ACCEPTANCE") == {"main"}
    assert pools("SPEC_NOT_ACTIVE") == {"main|standby"}


def test_pods_that_are_started_anew_are_those_of_one_pool() -> None:
    before = made("default", pools=("standby",))
    after = made("default", pools=("standby",), restarted={"main": 7})
    changed = [a["metadata"]["name"] for a, b in zip(before, after, strict=True) if a != b]
    assert changed == [NAME]
    notes = of("Deployment", after, NAME)["spec"]["template"]["metadata"]["annotations"]
    assert notes["specctl.dev/restarted-for"] == "7"


def test_a_standby_that_serves_scales_as_far_as_the_main_pool() -> None:
    def bounds(**more: Any) -> tuple[int, int]:
        rendering = made("default", "scaling.max=6", pools=("standby",), **more)
        spec = of("ScaledObject", rendering, f"{NAME}-standby")["spec"]
        return spec["minReplicaCount"], spec["maxReplicaCount"]

    assert bounds() == (1, 6)
    assert bounds(traffic="standby", raised={"standby": 3}) == (3, 6)


def test_a_pools_own_image_and_draft_are_the_canarys() -> None:
    rendering = made("pools", "pools.canary={version: 0.33.0, draft: {method: none}, min: 2}")
    canary = of("Deployment", rendering, "llama-3-3-70b-eagle3-h100-canary")
    assert engine(canary)["image"] == "vllm/vllm-openai:v0.33.0"
    assert "--speculative-config" not in engine(canary)["args"]
    assert canary["spec"]["replicas"] == 2
    assert engine(of("Deployment", rendering))["image"] == "vllm/vllm-openai:v0.32.0"


def test_the_config_hash_changes_with_what_runs_and_with_nothing_else() -> None:
    def hashed(*changes: str) -> str:
        template = of("Deployment", made("default", *changes))["spec"]["template"]
        return str(template["metadata"]["annotations"]["specctl.dev/config-hash"])

    assert hashed() == hashed("scaling.max=9") == hashed("alerts.acceptance_floor=0.5")
    assert len({hashed(), hashed("draft.K=5"), hashed("engine.env.A='1'")}) == 3


def test_weights_come_from_a_claim_or_an_image_without_the_network() -> None:
    for variant in ("claim", "image"):
        deployment = of("Deployment", made(variant))
        told = {each["name"]: each.get("value") for each in engine(deployment)["env"]}
        mounts = {each["name"]: each for each in engine(deployment)["volumeMounts"]}
        assert told["HF_HUB_OFFLINE"] == "1"
        assert mounts["models"]["readOnly"] is True
        egress = of("NetworkPolicy", made(variant))["spec"]["egress"]
        assert 443 not in {port["port"] for rule in egress for port in rule["ports"]}


def test_claims_are_shared_where_there_may_be_several_pods() -> None:
    def modes(*changes: str) -> set[str]:
        return {
            mode
            for each in made("default", *changes)
            if each["kind"] == "PersistentVolumeClaim"
            for mode in each["spec"]["accessModes"]
        }

    assert modes() == {"ReadWriteMany"}
    assert modes("scaling.max=1") == {"ReadWriteOnce"}
    assert modes("storage.persist=false") == set()


def test_api_servers_are_let_in_where_they_are_told() -> None:
    sources = of("NetworkPolicy", made("everything"))["spec"]["ingress"][0]["from"]
    assert {"ipBlock": {"cidr": "10.0.0.1/32"}} in sources
    spaces = [each.get("namespaceSelector", {}).get("matchLabels") for each in sources]
    assert {"kubernetes.io/metadata.name": "gateways"} in spaces


def test_yaml_has_no_anchors_and_is_the_same_bytes_twice() -> None:
    recipe, options = rendered_with(HUB, "everything", (1, 37))
    one, other = (stream(render(recipe, options).objects) for _ in range(2))
    assert one == other
    assert "&id" not in one
    shared = {"a": 1}
    assert yaml_text([shared, shared]) == "- a: 1\n- a: 1\n"


def test_scaling_to_zero_has_a_signal_from_in_front() -> None:
    scaled = of("ScaledObject", made("everything"))["spec"]
    assert scaled["minReplicaCount"] == 0
    assert scaled["triggers"][-1]["metadata"]["query"] == "sum(gateway_requests_in_flight)"


def test_a_plain_rendering_needs_no_options() -> None:
    assert objects(load(HUB)) == objects(load(HUB), RenderOptions())
