"""Recipes and options that cannot be rendered: said in one line, with the key to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speccli.core.errors import UsageError
from speccli.core.manifests import RenderOptions, objects
from speccli.core.manifests.options import deployment_name, server
from speccli.core.recipes.load import load
from tests.support.manifests import HUB

REFUSED: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "other-engine": (["engine.kind=sglang"], {}, "manifests are made for vllm"),
    "two-nodes": (
        ["serving.tensor_parallel=16", "hardware.count=16"],
        {},
        "16 GPUs of one server, and a node has 8",
    ),
    "more-than-given": (["serving.tensor_parallel=4"], {}, "hardware.count is 2"),
    "dra-too-old": ([], {"dra": True, "kubernetes": (1, 33)}, "resource.k8s.io/v1"),
    "claim-missing": (["storage.source=pvc"], {}, "no storage.claim"),
    "image-missing": (["storage.source=image"], {}, "no storage.image"),
    "image-too-old": (
        ["storage.source=image", "storage.image=a@sha256:0"],
        {"kubernetes": (1, 30)},
        "needs image volumes",
    ),
    "image-unused": (["storage.image=a"], {}, "without storage.source image"),
    "own-folder": (["target.model=/home/me/llama"], {}, "a folder of this machine"),
    "not-on-the-hub": (["target.model=/models/llama"], {}, "lies on a claim or image"),
    "key-in-args": (["engine.extra_args=[--api-key, abc]"], {}, "secrets.api_key"),
    "token-in-args": (
        ["engine.extra_args=[--x=hf_" + "a" * 30 + "]"],
        {},
        "looks like a secret",
    ),
    "host": (["engine.extra_args=[--host, 127.0.0.1]"], {}, "--host=::"),
    "no-standby-to-serve": ([], {"traffic": "standby"}, "traffic to the pool standby, and"),
    "replicas-and-a-scaler": ([], {"replicas": 2}, "--replicas 2, and keda scales"),
    "hostname-alone": ([], {"hostnames": ("a.example",)}, "--hostname without --gateway"),
    "hold": (["alerts.hold=soon"], {}, "alerts.hold"),
    "port": (["engine.extra_args=[--port=9000]"], {}, "--port"),
    "drain-in-args": (
        ["engine.extra_args=[--shutdown-timeout, '300']"],
        {},
        "serving.shutdown_timeout_s",
    ),
    "token-in-env": (["engine.env.HF_TOKEN=abc"], {}, "engine.env HF_TOKEN"),
    "password-in-env": (
        ["engine.env.HTTPS_PROXY=http://me:pw@proxy:3128"],
        {},
        "engine.env HTTPS_PROXY",
    ),
    "dev-mode": (["engine.env.VLLM_SERVER_DEV_MODE='1'"], {}, "VLLM_SERVER_DEV_MODE"),
    "env-name": (["engine.env={1X: a}"], {}, "no variable's name"),
    "to-zero": (["scaling.min=0"], {}, "no scaling.activation_query"),
    "hpa-to-zero": (["scaling.min=0"], {"autoscaler": "hpa"}, "scaling.min 0 with an HPA"),
    "min-over-max": (["scaling.min=5", "scaling.max=2"], {}, "5 servers at least and 2 at most"),
    "namespace": ([], {"namespace": "My Team"}, "--namespace 'My Team'"),
    "claim-name": (["storage.source=pvc", "storage.claim=My Claim"], {}, "storage.claim"),
    "client": (["network.clients=[Gate_way]"], {}, "network.clients 'Gate_way'"),
    "cidr": ([], {"api_server": ("10.0.0.1",)}, "--api-server '10.0.0.1'"),
    "cidr-of-recipe": (["network.api_server=[10.0.0.1/8]"], {}, "network.api_server"),
    "selector": (["scheduling.node_selector={'a b': c}"], {}, "scheduling.node_selector 'a b'"),
    "secret": (["secrets.api_key.name=A_B"], {}, "secrets.api_key.name 'A_B'"),
    "image": ([], {"image": "two words"}, "--image 'two words'"),
    "prometheus": ([], {"prometheus": "prom:9090"}, "--prometheus 'prom:9090'"),
    "password-in-url": ([], {"prometheus": "http://me:pw@prom:9090"}, "--prometheus"),
    "gateway": ([], {"gateway": "a/b/c"}, "--gateway 'a/b/c'"),
    "label": ([], {"monitor_labels": {"release": "a b"}}, "--label 'a b'"),
    "unknown-size": (
        ["target.model=acme/unheard-of"],
        {},
        "how large the weights of acme/unheard-of are",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    changes, given, told = REFUSED[name]
    with pytest.raises(UsageError) as refused:
        objects(load(HUB, changes), RenderOptions(**given))
    error = refused.value
    assert told in f"{error.message} {error.hint}"
    assert error.hint or "at least" in error.message
    assert "\n" not in error.message


def test_a_secret_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(UsageError) as refused:
        objects(load(HUB, ["engine.env.API_TOKEN=s3cret-value"]))
    assert "s3cret-value" not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        pytest.param("Llama 3.3 (70B)", "llama-3-3-70b", id="signs"),
        pytest.param("chat", "chat", id="as-it-is"),
    ],
)
def test_a_recipes_name_becomes_a_dns_label(given: str, name: str) -> None:
    assert deployment_name(replace(load(HUB), name=given), RenderOptions()) == name


@pytest.mark.parametrize("given", ["70b", "Chat", "a" * 44, "a-", "a.b", ""])
def test_a_typed_name_is_taken_as_it_is_or_not_at_all(given: str) -> None:
    with pytest.raises(UsageError):
        deployment_name(load(HUB), RenderOptions(name=given))


def test_servers_are_read_as_they_tell_themselves() -> None:
    assert server("v1.34.2+k3s1") == (1, 34)
    assert server("1.40") == (1, 40)
    for wrong in ("1.28", "9.9", "0.34", "latest", "1", ""):
        with pytest.raises(UsageError):
            server(wrong)
