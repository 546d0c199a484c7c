"""Stage 1: chat messages → token ids, with the target's own tokenizer and chat template."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from draft_training import answers, corpus, mix
from draft_training.events import Failed, Progress, tell
from draft_training.job import Job


def run(job: Job) -> dict[str, Any]:
    """Writes `work/prompts.npz`; what was kept and why the rest was not.

    Raises:
        Failed: there is nothing to ask, or the head to go on from is none of this target.
    """
    from transformers import AutoConfig, AutoTokenizer

    if job.prompts is None:
        raise Failed("no-prompts", "the job names no prompts", "give --data")
    tokenizer = AutoTokenizer.from_pretrained(job.target)
    if not getattr(tokenizer, "chat_template", None):
        raise Failed(
            "tokenizer-mismatch",
            f"the tokenizer of {job.target} has no chat template",
            "train on an instruction-tuned target, or put chat_template.jinja beside it",
        )
    config = AutoConfig.from_pretrained(job.target).get_text_config()
    if job.init is not None:
        from draft_training import given

        # Here, and not only where it is trained: the answers cost time on a GPU.
        given.judge(job, config)
    count = int(getattr(config, "num_hidden_layers", 0))
    if job.aux_layers and count and max(job.aux_layers) > count:
        asked = f"aux layers {job.aux_layers} of a target with {count}"
        raise Failed("bad-job", asked, f"take 1..{count}")
    vocabulary = int(config.vocab_size)
    rows = list(_rows(job.prompts))
    progress = Progress("prompts")
    kept: list[tuple[str | None, list[int]]] = []
    held: dict[str, list[list[int]]] = {}
    left_out: Counter[str] = Counter()
    for done, (test, source, messages) in enumerate(rows, 1):
        ids = _ids(tokenizer, messages)
        if len(ids) > job.answers.max_prompt_tokens:
            left_out["too long" if test is None else "too long to measure with"] += 1
        elif max(ids) >= vocabulary:
            raise Failed(
                "tokenizer-mismatch",
                f"the tokenizer gives token {max(ids)}; the target has {vocabulary}",
                "use the tokenizer that belongs to the target",
            )
        elif test is None:
            kept.append((source, ids))
        else:
            held.setdefault(test, []).append(ids)
        progress.at(done / len(rows))
    if not kept:
        raise Failed(
            "no-prompts",
            f"none of {len(rows)} prompts of {job.prompts} is of use: {dict(left_out)}",
            f"prompts may have {job.answers.max_prompt_tokens} tokens",
        )
    job.work.mkdir(parents=True, exist_ok=True)
    _ask(job, held)
    mixed, more = _mixed(job, kept)
    corpus.write(job.work / answers.PROMPTS, mixed, [len(ids) for ids in mixed])
    facts = {
        "prompts": len(mixed),
        "tokens": sum(map(len, mixed)),
        "left_out": dict(left_out),
        **more,
    }
    tell("said", stage="prompts", **facts)
    return facts


def _mixed(
    job: Job, kept: list[tuple[str | None, list[int]]]
) -> tuple[list[list[int]], dict[str, Any]]:
    """What is asked, and of which source how much: too long ones must not change the shares.

    Raises:
        Failed: a source has none left.
    """
    if not job.shares:
        return [ids for _, ids in kept], {}
    each = {name: [ids for source, ids in kept if source == name] for name in job.shares}
    if empty := [name for name, asked in each.items() if not asked]:
        raise Failed(
            "no-prompts",
            f"every prompt of {empty[0]} is too long, and it is to have a share",
            "raise answers.max_prompt_tokens, or leave the source out",
        )
    places, ended_by = mix.order(list(map(len, each.values())), list(job.shares.values()))
    names, rest = list(each), [iter(asked) for asked in each.values()]
    mixed = [next(rest[at]) for at in places]
    more: dict[str, Any] = {"by_source": {names[at]: n for at, n in Counter(places).items()}}
    if ended_by is not None:
        more |= {"ends_with": names[ended_by], "not_used": len(kept) - len(mixed)}
    return mixed, more


def _ask(job: Job, held: dict[str, list[list[int]]]) -> None:
    """Writes every test's prompts; answers to what is asked no more are removed."""
    for path in job.work.glob("asked-*.npz"):
        test = answers.test_of(path)
        if [ids.tolist() for ids in corpus.read([path]).documents] != held.get(test):
            answers.held_file(job, test).unlink(missing_ok=True)
            path.unlink()
    for test, asked in held.items():
        corpus.write(job.work / f"asked-{test}.npz", asked, [len(ids) for ids in asked])


def _ids(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _rows(path: Path) -> Iterator[tuple[str | None, str | None, list[dict[str, str]]]]:
    """(the test that a prompt is held out for, its source, its messages)."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            yield row.get("test"), row.get("source"), row["messages"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{path}, line {number} holds no messages: {error!r}"
            raise Failed("no-prompts", message, 'want {"messages": [...]}') from error
