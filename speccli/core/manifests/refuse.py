"""Recipes that cannot become manifests: each refused with the key to change."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speccli.core.errors import UsageError
from speccli.core.manifests.inputs import option_words, recipe_words
from speccli.core.manifests.options import CLAIMS, IMAGE_VOLUME, RenderOptions, dotted
from speccli.core.plan import Plan
from speccli.core.recipes.model import Recipe

MODELS = "/models"
"""Where weights are mounted."""

_SECRET = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)($|_)")
_SECRET_VALUE = re.compile(r"://[^/@\s]+:[^/@\s]+@|\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}")
"""A password in a URL, a token of the hub, an API key."""
_TAKEN = {
    "--port": "the container's port is 8000",
    "--uds": "probes and metrics go through a port",
    "--ssl-keyfile": "probes and metrics go over plain http, inside the cluster",
    "--ssl-certfile": "probes and metrics go over plain http, inside the cluster",
    "--root-path": "probes ask /health",
    "--headless": "a deployment over several nodes is not rendered",
    "--pipeline-parallel-size": "a deployment over several nodes is not rendered",
    "-pp": "a deployment over several nodes is not rendered",
    "--shutdown-timeout": "serving.shutdown_timeout_s sets it, and the pod's grace with it",
    "--tensor-parallel-size": "serving.tensor_parallel sets it",
    "-tp": "serving.tensor_parallel sets it",
    "--data-parallel-size": "serving.data_parallel sets it",
    "-dp": "serving.data_parallel sets it",
    "--served-model-name": "engine.served_model_name sets it",
    "--max-num-seqs": "serving.max_num_seqs sets it, and the autoscaler's target with it",
    "--download-dir": f"weights lie in {MODELS}",
}
_ALL = frozenset({"0.0.0.0", "::"})
"""Every address of the pod; the second one where pods have IPv6 only."""
_REFUSED_ENV = {
    "VLLM_SERVER_DEV_MODE": "it opens sleep, collective_rpc and cache resets to whoever reaches "
    "the port",
    "PROMETHEUS_MULTIPROC_DIR": "vLLM makes its own where it needs one; a set one keeps files of "
    "dead processes",
    "VLLM_PORT": "vLLM takes it for its internal ports",
}
_PROBLEM = tuple[str, str]


def refuse(plan: Plan, options: RenderOptions) -> None:
    """Raise on the first thing that cannot be.

    Raises:
        UsageError: what, and the key to change.
    """
    for key, value, kind in option_words(options):
        if not kind.fits(value):
            raise UsageError(f"{key} {_shown(value)} is no {kind.name}", hint=kind.example)
    if options.replicas is not None and options.autoscaler != "none":
        raise UsageError(
            f"--replicas {options.replicas}, and {options.autoscaler} scales",
            hint="scaling.min and scaling.max, or --autoscaler none",
        )
    if options.hostnames and options.gateway is None:
        raise UsageError("--hostname without --gateway", hint="--gateway NS/NAME")
    recipe = plan.facts.recipe
    for rule in (_engine, _gpus, _storage, _models, _arguments, _environment, _scaling, _words):
        for what, hint in rule(recipe, options):
            raise UsageError(f"{recipe.name}: {what}", hint=hint)


def _shown(value: str) -> str:
    return "(it holds a password)" if _SECRET_VALUE.search(value) else repr(value)


def _engine(recipe: Recipe, options: RenderOptions) -> Iterator[_PROBLEM]:
    if recipe.engine.kind != "vllm":
        yield f"engine.kind {recipe.engine.kind}: manifests are made for vllm", "engine.kind vllm"


def _gpus(recipe: Recipe, options: RenderOptions) -> Iterator[_PROBLEM]:
    serving, hardware = recipe.serving, recipe.hardware
    used = serving.tensor_parallel * serving.data_parallel
    if max(used, hardware.count) > hardware.gpus_per_node:
        yield (
            f"{max(used, hardware.count)} GPUs of one server, and a node has "
            f"{hardware.gpus_per_node} (hardware.gpus_per_node)",
            "a server over several nodes (LeaderWorkerSet) is not rendered: "
            "fewer GPUs, or a smaller quantization",
        )
    if used > hardware.count:
        yield (
            f"tensor_parallel {serving.tensor_parallel} x data_parallel {serving.data_parallel} "
            f"are {used} GPUs, hardware.count is {hardware.count}",
            f"hardware.count {used}",
        )
    if options.dra and options.kubernetes < CLAIMS:
        yield (
            f"--dra needs resource.k8s.io/v1, which Kubernetes {dotted(options.kubernetes)} lacks",
            f"--kubernetes {dotted(CLAIMS)} or newer, or the device plugin",
        )


def _storage(recipe: Recipe, options: RenderOptions) -> Iterator[_PROBLEM]:
    storage = recipe.storage
    if storage.source == "pvc" and not storage.claim:
        yield "storage.source pvc, and no storage.claim", "storage.claim with the claim's name"
    if storage.source == "image":
        if not storage.image:
            yield "storage.source image, and no storage.image", "storage.image with its digest"
        if options.kubernetes < IMAGE_VOLUME:
            yield (
                "storage.source image needs image volumes, which Kubernetes "
                f"{dotted(options.kubernetes)} lacks",
                f"--kubernetes {dotted(IMAGE_VOLUME)} or newer, or storage.source pvc",
            )
    if storage.source != "image" and storage.image:
        yield "storage.image without storage.source image", "storage.source image"


def _models(recipe: Recipe, options: RenderOptions) -> Iterator[_PROBLEM]:
    for key, name in (("target.model", recipe.target.model), ("draft.model", recipe.draft.model)):
        if name is None:
            continue
        inside = name.startswith(f"{MODELS}/")
        if name.startswith(("/", ".", "~")) and not inside:
            yield (
                f"{key} {name} is a folder of this machine; pods have none of it",
                f"a hub name, or a path under {MODELS} on the claim or image",
            )
        if inside and recipe.storage.source == "hub":
            yield (
                f"{key} {name} lies on a claim or image, and storage.source is hub",
                "storage.source pvc with storage.claim, or image with storage.image",
            )


def _arguments(recipe: Recipe, options: RenderOptions) -> Iterator[_PROBLEM]:
    words = recipe.engine.extra_args
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == "--host" and (value if equals else "".join(words[place + 1 :][:1])) not in _ALL:
            yield "--host in engine.extra_args: probes reach the pod's address", "--host=::"
        if flag == "--api-key":
            yield (
                "--api-key in engine.extra_args: a secret would stand in the manifest",
                "secrets.api_key with the Secret's name",
            )
        if flag in _TAKEN:
            yield f"{flag} in engine.extra_args: {_TAKEN[flag]}", "remove it"
        if _SECRET_VALUE.search(word):
            yield (
                "engine.extra_args holds what looks like a secret: it would stand in the manifest",
                "a Secret, and secrets.api_key or secrets.hf_token with its name",
            )


def _environment(recipe: Recipe, options: RenderOptions) -> Iterator[_PROBLEM]:
    for name, value in recipe.engine.env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name):
            yield f"engine.env {name!r} is no variable's name", "letters, digits and _"
        if name in _REFUSED_ENV:
            yield f"engine.env {name}: {_REFUSED_ENV[name]}", "remove it"
        switch = value.lower() in {"0", "1", "true", "false", "yes", "no"}
        if (_SECRET.search(name.upper()) and not switch) or _SECRET_VALUE.search(value):
            yield (
                f"engine.env {name}: a secret would stand in the manifest",
                "secrets.hf_token or secrets.api_key with the Secret's name",
            )


def _words(recipe: Recipe, options: RenderOptions) -> Iterator[_PROBLEM]:
    for key, value, kind in recipe_words(recipe):
        if not kind.fits(value):
            yield f"{key} {_shown(value)} is no {kind.name}", kind.example


def _scaling(recipe: Recipe, options: RenderOptions) -> Iterator[_PROBLEM]:
    if recipe.scaling.min > 0 or options.autoscaler == "none":
        return
    if options.autoscaler == "hpa":
        yield "scaling.min 0 with an HPA", "scaling.min 1, or --autoscaler keda"
    if recipe.scaling.activation_query is None:
        yield (
            "scaling.min 0, and no scaling.activation_query",
            "PromQL of the gateway's requests in flight: no queue is no proof of no work, and "
            "without pods the engine has no metrics; or scaling.min 1",
        )
