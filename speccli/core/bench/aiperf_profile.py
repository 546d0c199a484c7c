"""`aiperf profile`, called."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from speccli.core.bench.by_tool import Job
from speccli.core.bench.datasets import Prompt
from speccli.core.bench.foreign.level import prompt_id
from speccli.core.bench.results import Acceptance
from speccli.core.errors import SpecctlError

_FLAGS = ("--streaming", "--use-server-token-count", "--use-legacy-max-tokens")
_QUIET = ("--no-gpu-telemetry", "--no-server-metrics")
"""It has no GPU of the server's to ask, and the counters are read here."""


@dataclass(frozen=True, slots=True)
class AiperfProfile:
    """With the program of that name."""

    program: str
    name: str = "aiperf profile"

    @classmethod
    def here(cls) -> AiperfProfile:
        """On this machine.

        Raises:
            SpecctlError: it is not here.
        """
        beside = Path(sys.executable).with_name("aiperf")
        program = shutil.which("aiperf") or (str(beside) if beside.exists() else None)
        if program is None:
            raise SpecctlError(
                "aiperf is not on this machine",
                hint="pip install aiperf (in an environment of its own), and put it on PATH",
            )
        return cls(program)

    def command(self, job: Job) -> list[str]:
        """The words to call it by."""
        sampling, shape = job.sampling, job.shape
        path = job.folder / "prompts.jsonl"
        lines = (json.dumps({"text": prompt.text}) for prompt in job.prompts)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        body = {
            "max_tokens": sampling.longest,
            "temperature": sampling.temperature,
            **({} if sampling.top_p is None else {"top_p": sampling.top_p}),
            **({} if sampling.output_tokens is None else {"ignore_eos": True}),
            **job.asked,
        }
        words: dict[str, object] = {
            "--model": job.identity.model,
            "--url": job.url,
            "--endpoint-type": sampling.api,
            "--input-file": path,
            "--custom-dataset-type": "single_turn",
            "--dataset-sampling-strategy": "sequential",
            "--request-count": len(job.prompts),
            "--extra-inputs": json.dumps(body),
            "--random-seed": job.seed,
            "--output-artifact-dir": job.folder,
            "--ui": "none",
        }
        if shape.warmup:
            words["--warmup-request-count"] = shape.warmup
        if shape.rate is None:
            words["--concurrency"] = shape.concurrency
        else:
            words["--request-rate"] = f"{shape.rate:g}"
        if job.tokenizer is not None:
            words["--tokenizer"] = job.tokenizer
        told = [str(word) for pair in words.items() for word in pair]
        return [self.program, "profile", *told, *_FLAGS, *_QUIET]

    def result(self, job: Job) -> Path:
        """Where it leaves its result."""
        return job.folder / "profile_export_aiperf.json"

    def environment(self, job: Job) -> Mapping[str, str]:
        """Nothing of its own."""
        del job
        return {}

    def prompt_ids(self, told: Sequence[str], prompts: Sequence[Prompt]) -> tuple[str, ...]:
        """Its records are told apart by what was asked in them, as chat or as completion."""
        names = {}
        for prompt in prompts:
            for asked in ([{"role": "user", "content": prompt.text}], prompt.text, [prompt.text]):
                names[prompt_id(json.dumps([asked], sort_keys=True))] = prompt.id
        return tuple(names.get(each, each) for each in told)

    def acceptance(self, told: Acceptance, counted: Acceptance) -> Acceptance:
        """As counted around it, warm-up included."""
        del told
        return counted
