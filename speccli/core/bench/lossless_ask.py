"""Ask a server without speculation for its log-probabilities where an arm's answer parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccli.core.alert.probe.client import Client
from speccli.core.alert.probe.run import client_of
from speccli.core.bench import datasets
from speccli.core.bench.compare import baseline_of
from speccli.core.bench.lossless import lossless
from speccli.core.bench.results import Result
from speccli.core.errors import SourceError, UsageError
from speccli.core.lossless import CANDIDATES
from speccli.core.sources.scrape import Access
from speccli.core.sources.targets import Target


def conversations(
    result: Result, files: Iterable[str], folder: Path | None = None
) -> dict[str, tuple[datasets.Message, ...]]:
    """What was asked, by `dataset/id`, of every prompt at which an arm's answer parts.

    Raises:
        UsageError: nothing parts, or a dataset is not to be found here.
    """
    parted = {each.prompt for arm in lossless(result).arms for each in arm.partings}
    if not parted:
        raise UsageError(
            "no text that was kept parts from the baseline's: there is nothing to ask",
            hint="bench run --keep-texts keeps them",
        )
    given = {Path(file).stem: file for file in files}
    asked = {}
    for name in {prompt.partition("/")[0] for prompt in parted}:
        for prompt in datasets.load(given.get(name, name), folder=folder).prompts:
            if f"{name}/{prompt.id}" in parted:
                asked[f"{name}/{prompt.id}"] = prompt.messages
    return asked


async def ask_baseline(
    result: Result,
    asked: dict[str, tuple[datasets.Message, ...]],
    target: Target,
    access: Access,
    *,
    deadline_s: float,
    progress: Callable[[int, int], None],
) -> Result:
    """The result with the baseline's answers and log-probabilities beside its texts.

    Raises:
        SourceError: the server does not answer.
    """
    base = baseline_of(result, None)
    texts = {prompt: dict(each) for prompt, each in (result.texts or {})[base].items()}
    async with client_of(target, access, deadline_s) as client:
        met = await client.meet()
        if not met.ok:
            raise SourceError(f"{target.name}: {met.said}", hint="is the baseline up?")
        for done, (prompt, messages) in enumerate(asked.items()):
            progress(done, len(asked))
            if prompt in texts:
                texts[prompt]["asked"] = await _ask(client, result, messages)
    return replace(result, texts={**(result.texts or {}), base: texts})


async def _ask(
    client: Client, result: Result, messages: tuple[datasets.Message, ...]
) -> dict[str, Any]:
    longest = result.load.output_tokens or result.load.max_tokens or 128
    if result.load.endpoint == "completions":
        reply = await client.complete(
            messages[-1]["content"], longest, temperature=0.0, logprobs=CANDIDATES
        )
    else:
        reply = await client.converse(
            messages, longest, temperature=0.0, logprobs=True, top_logprobs=CANDIDATES
        )
    if not reply.ok:
        raise SourceError(f"{client.url}: {reply.said}")
    return {"text": reply.text, "logprobs": reply.choice.get("logprobs")}
