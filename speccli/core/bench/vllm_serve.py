"""`vllm bench serve`, called."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from speccli.core.bench.arms import python_with_vllm
from speccli.core.bench.by_tool import Job
from speccli.core.bench.datasets import Prompt
from speccli.core.bench.results import Acceptance
from speccli.core.bench.server import PATHS
from speccli.core.errors import SpecctlError

_BACKENDS = {"chat": "openai-chat", "completions": "openai"}
_NEEDS = "import importlib.util as u; print(u.find_spec('pandas') is not None)"
"""What reading a file of prompts takes, and a plain installation of vLLM may lack."""
_FLAGS = ("--skip-chat-template", "--disable-shuffle", "--disable-tqdm")
_SAVE = ("--save-result", "--save-detailed")


@dataclass(frozen=True, slots=True)
class VllmServe:
    """With the Python that vLLM is installed for."""

    python: Path
    name: str = "vllm bench serve"

    @classmethod
    def here(cls) -> VllmServe:
        """On this machine.

        Raises:
            SpecctlError: it is not here, or lacks a library.
        """
        python, _ = python_with_vllm()
        told = subprocess.run(
            [python, "-c", _NEEDS], capture_output=True, text=True, timeout=60, check=False
        )
        if told.stdout.strip() != "True":
            raise SpecctlError(
                f"vllm bench serve lacks pandas in {python}",
                hint=f"{python} -m pip install 'vllm[bench]', or pandas alone",
            )
        return cls(python)

    def command(self, job: Job) -> list[str]:
        """The words to call it by."""
        sampling, shape = job.sampling, job.shape
        path = job.folder / "prompts.jsonl"
        lines = (json.dumps({"prompt": prompt.text}) for prompt in job.prompts)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        words: dict[str, object] = {
            "--backend": _BACKENDS[sampling.api],
            "--base-url": job.url,
            "--endpoint": PATHS[sampling.api],
            "--model": job.identity.model,
            "--dataset-name": "custom",
            "--dataset-path": path,
            "--num-prompts": len(job.prompts),
            "--num-warmups": shape.warmup,
            "--custom-output-len": sampling.longest,
            "--temperature": sampling.temperature,
            "--seed": job.seed,
            "--ready-check-timeout-sec": 0,
            "--result-dir": job.folder,
            "--result-filename": self.result(job).name,
        }
        if job.tokenizer is not None:
            words["--tokenizer"] = job.tokenizer
        if shape.rate is None:
            words["--max-concurrency"] = shape.concurrency
        else:
            words["--request-rate"] = f"{shape.rate:g}"
        if sampling.top_p is not None:
            words["--top-p"] = sampling.top_p
        if job.asked:
            words["--extra-body"] = json.dumps(job.asked)
        flags = [*_FLAGS, *_SAVE]
        if sampling.output_tokens is not None:
            flags.append("--ignore-eos")
        if job.access.insecure:
            flags.append("--insecure")
        program = [str(self.python), "-m", "vllm.entrypoints.cli.main", "bench", "serve"]
        return [*program, *(str(word) for pair in words.items() for word in pair), *flags]

    def result(self, job: Job) -> Path:
        """Where it leaves its result."""
        return job.folder / "result.json"

    def environment(self, job: Job) -> Mapping[str, str]:
        """The token, which is no option."""
        token = job.access.bearer()
        return {"VLLM_NO_USAGE_STATS": "1", **({"OPENAI_API_KEY": token} if token else {})}

    def prompt_ids(self, told: Sequence[str], prompts: Sequence[Prompt]) -> tuple[str, ...]:
        """It tells requests in the order of the prompts."""
        return tuple(prompts[int(place)].id for place in told)

    def acceptance(self, told: Acceptance, counted: Acceptance) -> Acceptance:
        """Its own, of the measured requests alone; what it does not tell is counted."""
        if told.source == "none":
            return counted
        return replace(
            told,
            rate=replace(told.rate, reason=None),
            length=replace(told.length, reason=None),
            tokens_per_step=counted.tokens_per_step,
            counters=counted.counters,
        )
