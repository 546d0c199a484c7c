"""The pod of a pool: restricted Pod Security, probes by size, a drain, nothing written in place."""

from __future__ import annotations

from typing import Any

from speccli.core.manifests import names, sizes
from speccli.core.manifests.options import SLEEP, RenderOptions
from speccli.core.manifests.pools import Unit
from speccli.core.manifests.quantities import gib
from speccli.core.manifests.refuse import MODELS
from speccli.core.manifests.volumes import CACHE, HOME, mounts, volumes
from speccli.core.recipes.model import Recipe, SecretRef, Toleration

Object = dict[str, Any]

USER_ID = 1000
GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
PRODUCTS = {
    "h100": ("NVIDIA-H100-80GB-HBM3",),
    "h100-nvl": ("NVIDIA-H100-NVL",),
    "h200": ("NVIDIA-H200",),
    "a100": ("NVIDIA-A100-SXM4-80GB",),
}
"""What GPU feature discovery calls them; time-sliced and partitioned ones have a suffix."""
CLAIM = "gpus"
"""What the pod calls its ResourceClaim."""


def template(unit: Unit, options: RenderOptions) -> Object:
    """The pod template, without the hash of its configuration."""
    method, anew = unit.recipe.draft.method, options.restarted.get(unit.pool)
    return {
        "metadata": {
            "labels": {
                **names.labels(unit.deployment, unit.pool),
                names.SERVICE: names.service_name(unit.deployment, unit.pool, options.traffic),
                names.METHOD: method,
            },
            "annotations": {names.RESTARTED: str(anew)} if anew is not None else {},
        },
        "spec": _spec(unit, options),
    }


def _spec(unit: Unit, options: RenderOptions) -> Object:
    recipe = unit.recipe
    scheduling = recipe.scheduling
    spec: Object = {
        "serviceAccountName": unit.deployment,
        "automountServiceAccountToken": False,
        # A Service called vllm would make VLLM_PORT=tcp://…, which vLLM refuses.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": unit.times.grace,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if recipe.engine.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in recipe.engine.pull_secrets]
    if scheduling.runtime_class:
        spec["runtimeClassName"] = scheduling.runtime_class
    if priority := priority_class(unit, options):
        spec["priorityClassName"] = priority
    spec |= _where(unit, options)
    if options.dra:
        spec["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": unit.name}]
    spec["containers"] = [_container(unit, options)]
    spec["volumes"] = volumes(unit)
    return spec


def priority_class(unit: Unit, options: RenderOptions) -> str | None:
    """The PriorityClass of a pool's pods: an existing one, or one of the deployment's own."""
    scheduling = unit.recipe.scheduling
    if scheduling.priority is None:
        return scheduling.priority_class
    # Neither part can hold a dot, so no two deployments of a cluster share a name.
    name = f"{names.MANAGER}.{options.namespace}.{unit.deployment}"
    return f"{name}.canary" if unit.pool == "canary" else name


def _where(unit: Unit, options: RenderOptions) -> Object:
    recipe = unit.recipe
    where: Object = {}
    if recipe.scheduling.node_selector:
        where["nodeSelector"] = dict(recipe.scheduling.node_selector)
    elif not options.dra:  # a claim chooses the device itself
        products = list(recipe.hardware.products or PRODUCTS[recipe.hardware.gpu])
        terms = [{"matchExpressions": [{"key": PRODUCT, "operator": "In", "values": products}]}]
        required = {"nodeSelectorTerms": terms}
        where["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    own = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    where["tolerations"] = own + [_toleration(each) for each in recipe.scheduling.tolerations]
    where["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": names.selector(unit.deployment, unit.pool)},
            "matchLabelKeys": ["pod-template-hash"],
        }
    ]
    return where


def _toleration(each: Toleration) -> Object:
    pairs = (
        ("key", each.key),
        ("operator", each.operator),
        ("value", each.value),
        ("effect", each.effect),
    )
    return {key: value for key, value in pairs if value is not None}


def _container(unit: Unit, options: RenderOptions) -> Object:
    line = unit.plan.line.command
    return {
        "name": names.CONTAINER,
        "image": unit.image,
        "imagePullPolicy": "IfNotPresent",
        # Exec form: the engine is process 1, so SIGTERM reaches it.
        "command": [verbatim(word) for word in line[:3]],
        "args": [verbatim(word) for word in line[3:]],
        "env": environment(unit),
        "ports": [{"name": names.PORT_NAME, "containerPort": names.PORT, "protocol": "TCP"}],
        **_probes(unit),
        "lifecycle": {"preStop": _pre_stop(options)},
        "resources": _resources(unit, options),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
        "volumeMounts": mounts(unit),
    }


def _probes(unit: Unit) -> Object:
    # The port opens once the model is loaded, and stays open while requests are drained. With an
    # API key /v1/models answers 401, so readiness asks /health too.
    def ask(every: int, patience: int, failures: int) -> Object:
        return {
            "httpGet": {"path": "/health", "port": names.PORT_NAME, "scheme": "HTTP"},
            "periodSeconds": every,
            "timeoutSeconds": patience,
            "failureThreshold": failures,
        }

    return {
        "startupProbe": ask(10, 5, -(-unit.times.startup // 10)),
        "readinessProbe": ask(5, 5, 3),
        "livenessProbe": ask(10, 10, 6),
    }


def _pre_stop(options: RenderOptions) -> Object:
    if options.kubernetes >= SLEEP:
        return {"sleep": {"seconds": sizes.PRE_STOP_S}}
    return {"exec": {"command": ["sleep", str(sizes.PRE_STOP_S)]}}


def _resources(unit: Unit, options: RenderOptions) -> Object:
    hardware = unit.recipe.hardware
    count = hardware.count
    requests = {
        "cpu": str(hardware.cpu_per_gpu * count),
        "memory": gib(hardware.memory_gib_per_gpu * count),
    }
    # No CPU limit: throttling shows as latency. Shared memory counts against the memory limit.
    limits = {"memory": gib(2 * hardware.memory_gib_per_gpu * count)}
    if options.dra:
        return {"requests": requests, "limits": limits, "claims": [{"name": CLAIM}]}
    gpus = {GPU: str(count)}
    return {"requests": requests | gpus, "limits": limits | gpus}


def verbatim(word: str) -> str:
    """A word that the kubelet hands on as it is: `$(NAME)` would stand for a variable's value."""
    return word.replace("$(", "$$(")


def environment(unit: Unit) -> list[Object]:
    """Variables of the engine's process: fixed ones, the recipe's over them, Secrets by name."""
    recipe = unit.recipe
    plain = {
        "HOME": HOME,
        "USER": "vllm",  # torch asks for the user's name, and 1000 has none
        "HF_HUB_CACHE": MODELS,
        "VLLM_CACHE_ROOT": f"{CACHE}/vllm",
        "TRITON_CACHE_DIR": f"{CACHE}/triton",
        "VLLM_NO_USAGE_STATS": "1",
        "PROMETHEUS_DISABLE_CREATED_SERIES": "True",
    }
    if recipe.storage.source != "hub":
        plain["HF_HUB_OFFLINE"] = "1"
    plain |= recipe.engine.env
    told: list[Object] = [{"name": name, "value": verbatim(value)} for name, value in plain.items()]
    return told + [_secret(name, ref, optional) for name, ref, optional in _secrets(recipe)]


def _secrets(recipe: Recipe) -> list[tuple[str, SecretRef, bool]]:
    found = []
    given = recipe.secrets
    if recipe.storage.source == "hub":
        found.append(("HF_TOKEN", given.hf_token or SecretRef("hf-token"), given.hf_token is None))
    if given.api_key is not None:
        found.append(("VLLM_API_KEY", given.api_key, False))
    return found


def _secret(name: str, ref: SecretRef, optional: bool) -> Object:
    source = {"name": ref.name, "key": ref.key} | ({"optional": True} if optional else {})
    return {"name": name, "valueFrom": {"secretKeyRef": source}}
