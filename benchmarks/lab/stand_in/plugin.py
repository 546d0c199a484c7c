"""vLLM's side: `--load-format stand-in`, and the upcycled model with what EAGLE-3 reads of it."""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm import ModelRegistry
    from vllm.model_executor import model_loader

    if "stand-in" in model_loader._LOAD_FORMAT_TO_MODEL_LOADER:
        return
    model_loader.register_model_loader("stand-in")(_loader())
    ModelRegistry.register_model("UpcycledForCausalLM", "stand_in.upcycled:UpcycledForCausalLM")


def _loader() -> type:
    import dataclasses
    import time
    from pathlib import Path

    import torch
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.platforms import current_platform

    from stand_in import folders

    class StandInLoader(DefaultModelLoader):  # type: ignore[misc]
        """Makes the weights of a stand-in; of any other folder it loads what lies there."""

        def download_model(self, model_config: Any) -> None:
            if not _is(model_config):
                super().download_model(model_config)

        def get_all_weights(self, model_config: Any, model: Any) -> Any:
            if not _is(model_config):
                plain = dataclasses.replace(self.load_config, load_format="auto")
                yield from DefaultModelLoader(plain).get_all_weights(model_config, model)
                return
            self.counter_before_loading_weights = time.perf_counter()
            folder, device = Path(model_config.model), current_platform.device_type
            yield from folders.tensors(folder, device, model_config.dtype)
            if device == "cuda":
                torch.cuda.empty_cache()

    def _is(model_config: Any) -> bool:
        return (Path(model_config.model) / folders.RECIPE).exists()

    return StandInLoader
