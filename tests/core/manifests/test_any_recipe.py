"""Whatever a recipe says, it is rendered soundly or refused in one line; never a bug."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from speccli.core.errors import UsageError
from speccli.core.manifests import RenderOptions, objects
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load
from tests.support.manifests import validate_new

WORDS = ["a", "A b", "x" * 70, "", "ns", "10.0.0.0/8", "../x", "$(HOME)", "é", "a:b", "'", "-a"]
SETS = {
    "hardware.count": st.integers(1, 20),
    "hardware.gpus_per_node": st.integers(1, 16),
    "hardware.cpu_per_gpu": st.integers(1, 32),
    "hardware.memory_gib_per_gpu": st.integers(8, 1024),
    "serving.tensor_parallel": st.integers(1, 16),
    "serving.data_parallel": st.integers(1, 4),
    "serving.max_num_seqs": st.integers(1, 4096),
    "serving.shutdown_timeout_s": st.integers(0, 7200),
    "serving.startup_timeout_s": st.integers(10, 90000),
    "scaling.min": st.integers(0, 9),
    "scaling.max": st.integers(1, 9),
    "scaling.queue_wait_ms_target": st.floats(1, 1e6),
    "scaling.running_share": st.floats(0.05, 1),
    "scaling.scale_up_stabilization_s": st.integers(0, 3600),
    "scaling.scale_down_stabilization_s": st.integers(0, 3600),
    "scaling.tolerance": st.floats(0, 1),
    "scheduling.priority": st.integers(-(10**9), 10**9),
    "storage.read_mb_s": st.floats(1, 1e5),
    "storage.cache_gib": st.integers(1, 5000),
    "storage.persist": st.sampled_from(["true", "false"]),
    "storage.source": st.sampled_from(["hub", "pvc", "image"]),
    "storage.claim": st.sampled_from(WORDS),
    "storage.image": st.sampled_from([*WORDS, "a/b@sha256:" + "0" * 64]),
    "storage.class": st.sampled_from(WORDS),
    "engine.image": st.sampled_from(WORDS),
    "engine.version": st.sampled_from(["0.32.0", "0.17.1", "0.99.0", "nightly", "v0.31"]),
    "engine.served_model_name": st.sampled_from(WORDS),
    "engine.env.A": st.sampled_from(WORDS),
    "secrets.api_key.name": st.sampled_from(WORDS),
    "network.monitoring": st.sampled_from(WORDS),
    "scheduling.runtime_class": st.sampled_from(WORDS),
    "name": st.sampled_from([*WORDS, "Llama 3"]),
    "draft.method": st.sampled_from(["none", "ngram", "eagle3"]),
    "alerts.acceptance_floor": st.floats(0, 1),
    "cost.gpu_hour_usd": st.floats(0, 100),
}


@given(
    st.sampled_from(sorted(catalog.names())),
    st.lists(st.sampled_from(sorted(SETS)), max_size=6, unique=True),
    st.fixed_dictionaries(
        {
            "autoscaler": st.sampled_from(["keda", "hpa", "none"]),
            "kubernetes": st.tuples(st.just(1), st.integers(29, 37)),
            "pools": st.sampled_from([(), ("structured",), ("structured", "canary"), ("standby",)]),
            "dra": st.booleans(),
            "inference_pool": st.booleans(),
            "surge": st.integers(0, 3),
            "namespace": st.sampled_from(["llm", "Bad", "x" * 63]),
        }
    ),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_it_is_rendered_or_refused(
    name: str, keys: list[str], options: dict[str, Any], data: st.DataObject
) -> None:
    changes = [f"{key}={data.draw(SETS[key], label=key)}" for key in keys]
    try:
        made = objects(load(name, changes), RenderOptions(**options))
    except UsageError as error:
        made, told = [], error.message
    else:
        told = "rendered"
    assert told
    assert "\n" not in told
    validate_new(made, options["kubernetes"])
