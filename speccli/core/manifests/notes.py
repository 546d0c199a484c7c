"""What an operator should know of a rendering that is otherwise sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speccli.core.engines.vllm_flags import FLAGS_SINCE
from speccli.core.engines.vllm_speculative import dotted as version_text
from speccli.core.findings.base import Severity
from speccli.core.manifests import options as opt
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.pools import Unit, units
from speccli.core.manifests.sizes import LONGEST_WINDOW_S
from speccli.core.preflight.base import Verdict, in_order
from speccli.core.recipes.model import Recipe


def notes(recipe: Recipe, options: RenderOptions) -> list[Verdict]:
    """Findings about the manifests, and the plan's critical ones; worst first."""
    found = units(recipe, options)
    told: list[Verdict] = []
    for unit in found:
        told += [verdict for verdict in unit.plan.verdicts if verdict.severity == "critical"]
    for rule in (_image, _drain, _storage, _window, _rollout, _server, _monitors, _route):
        told += rule(found, options)
    return in_order(dict.fromkeys(told))


def _note(
    rule: str, severity: Severity, evidence: str, cause: str, action: str, thread: str = ""
) -> Verdict:
    return Verdict(rule, severity, evidence, cause, action, thread, subject="manifests")


def _image(found: Sequence[Unit], options: RenderOptions) -> Iterator[Verdict]:
    images = dict.fromkeys(unit.image for unit in found)
    storage = found[0].recipe.storage
    if storage.image:
        images[storage.image] = None
    for image in images:
        if "@sha256:" not in image:
            yield _note(
                "R-DIGEST",
                "warning",
                f"image {image} has no digest",
                "a tag may be another image tomorrow, or on another node",
                "engine.image NAME@sha256:…, from the registry you pull from",
            )


def _drain(found: Sequence[Unit], options: RenderOptions) -> Iterator[Verdict]:
    for unit in found:
        if unit.times.shutdown:
            continue
        since, version = FLAGS_SINCE["--shutdown-timeout"], unit.plan.facts.version
        old = version is not None and version < since
        yield _note(
            "R-DRAIN",
            "warning",
            f"vLLM {unit.recipe.engine.version} has no --shutdown-timeout"
            if old
            else "serving.shutdown_timeout_s 0",
            "running requests are aborted at the end of a pod, and clients wait for nothing",
            f"vLLM {version_text(since)} or newer" if old else "about the p99 of your requests",
            "vllm PR#43208",
        )


def _storage(found: Sequence[Unit], options: RenderOptions) -> Iterator[Verdict]:
    storage = found[0].recipe.storage
    pods = sum(unit.most if unit.autoscaled else unit.least for unit in found)
    made = storage.persist and (storage.source == "hub" or not storage.cache_claim)
    if made and pods > 1 and storage.access in {"ReadWriteOnce", "ReadWriteOncePod"}:
        yield _note(
            "R-VOLUME",
            "warning",
            f"storage.access {storage.access} and up to {pods} pods",
            "a second pod on another node waits for the volume for ever",
            "storage.access ReadWriteMany, an image, or storage.persist false",
        )
    elif made and pods > 1 and storage.class_name is None and storage.access is None:
        yield _note(
            "R-VOLUME",
            "info",
            f"claims are ReadWriteMany, for up to {pods} pods",
            "many clusters' default storage class cannot do that; the claim then stays Pending",
            "storage.class with one that can, storage.claim, or storage.persist false",
        )


def _window(found: Sequence[Unit], options: RenderOptions) -> Iterator[Verdict]:
    for unit in found:
        window = unit.times.scale_down
        if unit.autoscaled and unit.most > 1 and window < unit.times.startup:
            yield _note(
                "R-WINDOW",
                "warning" if window < unit.times.startup / 2 else "info",
                f"fewer servers after {window} s, a start may take {unit.times.startup} s",
                "while pods load fewer than there are seem enough, and those that load are stopped",
                f"scaling.scale_down_stabilization_s {min(LONGEST_WINDOW_S, unit.times.startup)}",
                "llm-d-autoscaling#777",
            )


def _rollout(found: Sequence[Unit], options: RenderOptions) -> Iterator[Verdict]:
    if options.surge == 0 and found[0].least <= 1:
        yield _note(
            "R-ROLLOUT",
            "info",
            "maxSurge 0 and one server",
            "a rollout stops it before the next one starts: about "
            f"{found[0].times.startup} s at most without service",
            "--surge 1 where a server's GPUs are free, or scaling.min 2",
            "LLMKube#192",
        )


def _server(found: Sequence[Unit], options: RenderOptions) -> Iterator[Verdict]:
    version = opt.dotted(options.kubernetes)
    if options.kubernetes > opt.NEWEST:
        yield _note(
            "R-SERVER",
            "warning",
            f"Kubernetes {version} is newer than {opt.dotted(opt.NEWEST)}",
            "its schemas were not read",
            "specctl deploy --dry-run asks the server itself",
        )
    recipe = found[0].recipe
    if recipe.storage.source == "image" and options.kubernetes < opt.IMAGE_VOLUME_ON:
        yield _note(
            "R-SERVER",
            "warning",
            f"storage.source image on Kubernetes {version}",
            "image volumes are off there unless the feature gate ImageVolume is on",
            f"turn it on, or use {opt.dotted(opt.IMAGE_VOLUME_ON)}",
        )
    if recipe.scaling.tolerance is not None and options.kubernetes < opt.TOLERANCE_ON:
        left_out = options.kubernetes < opt.TOLERANCE
        yield _note(
            "R-SERVER",
            "warning",
            f"scaling.tolerance on Kubernetes {version}",
            "it is left out: the server has no such field"
            if left_out
            else "it is dropped unless the feature gate HPAConfigurableTolerance is on",
            f"use {opt.dotted(opt.TOLERANCE_ON)}, or remove it",
        )


def _monitors(found: Sequence[Unit], options: RenderOptions) -> Iterator[Verdict]:
    scaled = options.autoscaler != "none"
    if scaled and (not options.monitoring or options.rules == "none"):
        yield _note(
            "R-MONITOR",
            "warning",
            "an autoscaler without the rules it reads",
            "it asks for specctl:pool_queue_wait_ms, which nothing records then",
            "--rules scaling, or record the rules of this rendering yourself",
        )
    elif options.monitoring and not options.monitor_labels:
        yield _note(
            "R-MONITOR",
            "info",
            "no --label",
            "many operators pick monitors and rules by a label, and say nothing of others",
            "--label release=NAME, as your Prometheus' podMonitorSelector has it",
            "prometheus-operator#4227",
        )
    if options.autoscaler == "hpa":
        yield _note(
            "R-MONITOR",
            "info",
            "an HPA reads external metrics",
            "prometheus-adapter has to serve them, and no other program external.metrics.k8s.io",
            "install it with the rules of prometheus-adapter-values.yaml (--out writes it)",
        )


def _route(found: Sequence[Unit], options: RenderOptions) -> Iterator[Verdict]:
    if options.inference_pool:
        pickers = ", ".join(f"{unit.name}-epp" for unit in found if unit.pool != "canary")
        yield _note(
            "R-PICKER",
            "info",
            f"InferencePools name Services {pickers}",
            "endpoint pickers come from their own chart",
            "install one a pool; without it requests go to any pod (FailOpen)",
        )
