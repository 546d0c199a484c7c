from __future__ import annotations

import io
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from rich.console import Console, RenderableType

from speccli.core.bench.results import Acceptance, Result, Row, ServerFacts
from speccli.core.errors import UsageError
from speccli.core.report.build import Report
from speccli.core.report.card import card
from speccli.core.report.document import document
from speccli.core.report.markdown import markdown
from speccli.core.report.page import page
from speccli.core.report.sections import Table, sections
from speccli.core.report.write import texts, write
from speccli.core.values import Number
from speccli.tables.bench_run import run_table
from tests.support.benches import PLAIN, Planted, bench, sweep, without_samples
from tests.support.golden import assert_golden
from tests.support.reports import report, whole


@pytest.fixture(scope="module")
def made() -> Report:
    return report(whole())


def test_energy_memory_and_load_are_told_where_they_are_known() -> None:
    result = whole(prompts=20)
    assert "GPU, energy, memory" not in markdown(report(result))
    gib = 2**30
    facts = ServerFacts(kv_cache_tokens=Number.known(45_056), weights_bytes=Number.known(15 * gib))
    eagle = replace(result.arm("eagle3"), server=facts)
    rows = tuple(
        replace(row, energy_j_per_token=Number.known(0.125), power_w=Number.unknown("it hides it"))
        for row in result.rows
    )
    load = replace(
        result.load,
        requests=20,
        requests_by_load=(20, 40, 80, 160, 320),
        warmup=2,
        warmup_by_load=(2, 8, 32, 64, 128),
        window="whole",
        endpoint="completions",
    )
    came = replace(result.provenance, gpu=None, gpu_reason="nobody was asked", top_p=0.9)
    arms = tuple(eagle if arm.name == "eagle3" else arm for arm in result.arms)
    text = markdown(report(replace(result, rows=rows, arms=arms, load=load, provenance=came)))
    assert "| 1 | eagle3 | — | — | — | 0.125 |" in text
    assert "power, W: it hides it" in text
    assert "| eagle3 | 45,056 | — | 15.00 | — | — |" in text
    assert "requests a row 20 (batch 1), 40 (batch 8)" in text
    assert "warm-up requests a row 2 (batch 1), 8 (batch 8)" in text
    assert "window whole" in text
    assert "endpoint completions" in text
    assert "top-p 0.9" in text
    assert "not known: nobody was asked" in text


def test_the_markdown_of_a_fixed_bench_is_the_golden_one(made: Report) -> None:
    text = re.sub(r"genai-prices [\d.]+", "genai-prices X", markdown(made))
    text = re.sub(r"(?m)^\| (claude|gpt)-.*\n", "", text)  # prices move with the package
    assert_golden("report.md", text)


def test_every_form_says_that_it_is_simulated(made: Report) -> None:
    for name, text in texts(made).items():
        assert "SIMULATED" in text or '"simulated": true' in text, name


def test_every_section_with_numbers_carries_the_mark_of_what_they_are(made: Report) -> None:
    kinds = {section.name: section.kind for section in sections(made)}
    for name in ("speedup", "crossover", "latency", "acceptance", "cost"):
        assert kinds[name] == "simulated"
    real = replace(made, result=replace(made.result, simulated=False, stand_in="a stand-in"))
    assert "◐" in markdown(real)
    assert "◇" not in markdown(real)


class Reader(HTMLParser):
    """What is open, and what would be fetched."""

    VOID = frozenset({"meta", "link", "br", "line", "path", "rect", "circle"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        told = dict(attrs)
        self.links += [v for name in ("href", "src") if (v := told.get(name))]
        if told.get("id"):
            self.ids.append(str(told["id"]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_the_page_is_whole_and_fetches_nothing(made: Report) -> None:
    text = page(made)
    reader = read(text)
    assert "script" not in reader.tags
    assert all(link.startswith("#") or link == "data:," for link in reader.links)
    assert {link[1:] for link in reader.links if link.startswith("#")} <= set(reader.ids)
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_every_chart_has_words_for_those_who_cannot_see_it(made: Report) -> None:
    labels = re.findall(r'<svg class="chart"[^>]*aria-label="([^"]+)"', page(made))
    assert len(labels) == 2 + 2 + 2 + 2, "speed-ups, latencies, acceptance, cost"
    assert "eagle3 at 128: 0.7" in labels[0]
    assert "FAIL" in labels[0]


def test_names_from_servers_cannot_write_the_page() -> None:
    evil = "<script>alert(1)</script>|`x`"
    result = whole(batches=(8,), prompts=30)
    arms = tuple(replace(a, model=evil, draft=evil) for a in result.arms)
    rows = tuple(
        replace(r, state="failed", reason=f"{evil}\x1b[2J") if r.repeat == 2 else r
        for r in result.rows
    )
    named = report(replace(result, name=evil, arms=arms, rows=rows))
    assert "script" not in read(page(named)).tags
    assert "\x1b" not in page(named) + markdown(named) + card(named)
    assert "<script>" not in markdown(named)


def test_names_from_files_cannot_write_commands_or_pictures() -> None:
    evil = "a;reboot #\nreboot\n```\n![x](http://evil/?q) [y](http://evil)"
    result = whole(batches=(8,), prompts=30)
    names = {arm.name: arm.name if arm.baseline else f"{arm.name}{evil}" for arm in result.arms}
    arms = tuple(
        replace(
            a, name=names[a.name], model=evil, endpoint="http://h:1;reboot", command=("v", evil)
        )
        for a in result.arms
    )
    rows = tuple(replace(r, arm=names[r.arm]) for r in result.rows)
    made = report(replace(result, name=evil, arms=arms, rows=rows, stand_in=evil))
    text = card(made).split("---\n", 2)[2]
    assert text.count("```") == 2
    script = text.split("```")[1].removeprefix("sh\n")
    told = [shlex.split(line, comments=True) for line in script.splitlines()]
    assert {words[0] for words in told if words} == {"v", "specctl"}
    assert "http://h;reboot" not in script
    outside = "".join((text + markdown(made)).split("```")[::2])
    commands = markdown(made).split("```sh\n")[-1].split("```")[0]
    assert not re.search(r"(?m)^reboot", commands)
    assert not re.search(r"(?<!\\)\]\(", outside), "neither a link nor a picture"


def test_the_card_judges_again_by_the_same_bench() -> None:
    result = whole(batches=(8,), prompts=30)
    load = replace(result.load, max_tokens=77, endpoint="completions", window="whole")
    came = replace(result.provenance, temperature=0.7, top_p=0.9)
    text = card(report(replace(result, load=load, provenance=came, stand_in="a small one")))
    again = next(line for line in text.splitlines() if line.startswith("specctl bench run"))
    for words in (
        "--requests 30 --max-tokens 77 --temperature 0.7 --top-p 0.9 --seed 1 --warmup 4",
        "--api completions --window whole --stand-in 'a small one' --repeats 3 --out bench.json",
    ):
        assert words in again


def test_the_card_names_no_server_that_the_bench_has_ended_and_no_draft_that_is_none() -> None:
    at = "http://127.0.0.1:4353"
    result = whole(batches=(8,), prompts=30)
    arms = tuple(replace(arm, endpoint=f"{at}{i}") for i, arm in enumerate(result.arms))
    assert card(report(replace(result, arms=arms))).count(at) == 3 + len(arms)
    ended = tuple(replace(arm, start_s=31.0) for arm in arms)
    text = card(report(replace(result, arms=ended)))
    assert at not in text
    assert re.search(r"--arm ngram=http://HOST\d:8000", text)
    assert "| draft | simulated-eagle3 |" in text
    kept = {"none", "ngram"}
    slow = replace(
        result,
        arms=tuple(arm for arm in ended if arm.name in kept),
        rows=tuple(row for row in result.rows if row.arm in kept),
    )
    assert "| method | none |" in card(report(slow))
    assert "| draft |" not in card(report(slow))


def test_what_is_not_known_is_a_dash_with_its_reason() -> None:
    bare = without_samples(whole(batches=(8, 32), prompts=30))
    rows = tuple(
        replace(r, acceptance=Acceptance.unknown("/metrics is not served")) for r in bare.rows
    )
    text = markdown(report(replace(bare, rows=rows)))
    assert "single requests are not known" in text
    assert "## Acceptance" not in text
    assert "of these prompts only" in text


def test_no_gpu_price_is_no_cost_and_says_what_to_give() -> None:
    result = whole(batches=(8,), prompts=30)
    free = replace(result, arms=tuple(replace(a, gpu_hour_usd=None) for a in result.arms))
    assert "No cost can be told: no GPU price given (--gpu-hour-usd)." in markdown(report(free))
    assert "$/1M" in markdown(report(free, gpu_hour_usd=2.0))


def test_rows_left_out_are_in_the_report_with_why() -> None:
    result = whole(batches=(8,), prompts=30)
    rows = tuple(
        replace(r, state="contaminated", reason="other traffic: 900 tokens")
        if (r.arm, r.repeat) == ("eagle3", 0)
        else r
        for r in result.rows
    )
    text = markdown(report(replace(result, rows=rows)))
    assert (
        "| eagle3, batch 8, sharegpt, repeat 1 | contaminated | other traffic: 900 tokens |" in text
    )


def test_the_json_is_the_contracts_object(made: Report) -> None:
    told = json.loads(json.dumps(document(made), allow_nan=False))
    assert told["schema"] == "specctl.report/v1"
    assert told["comparison"]["schema"] == "specctl.compare/v1"
    assert {each["arm"] for each in told["acceptance"]} == {"eagle3", "p-eagle", "ngram"}
    assert len(told["latency"]) == 4 * 5
    assert told["kind"] == "simulated"


def test_the_card_is_a_skill_with_commands_limits_and_numbers(made: Report) -> None:
    text = card(made)
    _, head, body = text.split("---\n", 2)
    told = yaml.safe_load(head)
    assert re.fullmatch(r"[a-z0-9-]{1,64}", told["name"])
    assert "Use when" in told["description"]
    for heading in ("Recipe", "Commands", "Decision guide", "Limits", "Measured numbers"):
        assert f"## {heading}" in body
    assert "vllm serve simulated-8b" in body
    assert "nothing is known beyond" in body
    assert re.search(r"Batch from which eagle3 is slower on sharegpt: 8\d .*\(interpolated\)", body)
    never = bench([PLAIN, Planted("eagle3", {8: 1.5, 32: 1.5})], batches=(8, 32), prompts=40)
    assert "is slower on sharegpt: none up to 32.\n" in card(report(never))
    assert "not told by the bench" in body, "the longest context is not in the file"


def test_the_card_does_not_tell_what_nobody_measured() -> None:
    bare = replace(
        whole(batches=(8,), prompts=30),
        arms=tuple(
            replace(a, command=None, engine={}, model=None) for a in whole(batches=(8,)).arms
        ),
    )
    text = card(report(bare))
    assert "how eagle3 (with speculation) was started is not in the bench" in text
    assert "vllm serve" not in text


def test_answers_of_another_length_than_was_asked_are_told_in_every_form() -> None:
    result = whole(batches=(8,), datasets=("sharegpt",), prompts=20)
    made = result.rows[0].samples.output_tokens[0]
    asked = replace(result, load=replace(result.load, output_tokens=made))
    assert f"Every answer was made {made} tokens long (ignore\\_eos)." in card(report(asked))
    assert "tokens long and are not" not in "".join(texts(report(asked)).values())
    row = next(each for each in asked.rows if each.arm == "eagle3")
    cut = replace(row, samples=replace(row.samples, output_tokens=(17, 19, *[made] * 18)))
    told = f"to be {made} tokens long and are not: 2 of 60 of eagle3 (17 to 19)"
    for name, text in texts(report(asked.with_row(cut))).items():
        assert told in text, name
        assert "very answer was made" not in text, name
    assert told in _printed(run_table(asked.with_row(cut)))
    alone = replace(asked, arms=(asked.arm("eagle3"),), rows=(cut,))
    assert "are not: 2 of 20 of eagle3" in markdown(report(alone)), "without a comparison"


@pytest.mark.parametrize(
    ("name", "temperature", "first", "said"),
    [
        pytest.param("eagle3", 0.7, 0.04, "server is at fault, not the draft", id="sampled"),
        pytest.param("eagle3", 0.0, 0.04, "belongs to another target", id="greedy"),
        pytest.param("ngram", 0.0, 0.04, "seldom came again", id="no-weights"),
        pytest.param("eagle3", 0.7, 0.3, None, id="a-bad-draft-is-no-broken-one"),
    ],
)
def test_drafts_that_are_next_to_never_accepted_are_told_in_every_form(
    name: str, temperature: float, first: float, said: str | None
) -> None:
    arms = [PLAIN, Planted(name, {}, name, positions=(first, first / 10, first / 10))]
    result = bench(arms, batches=(8,), prompts=20)
    came = replace(result.provenance, temperature=temperature)
    result = replace(result, provenance=came)
    for form, text in texts(report(result)).items():
        assert ("draft tokens accepted, next to none" in text) == (said is not None), form
        assert said is None or said in text, form
        assert ("another target" in text) == (said is not None and "another" in said), form
    table = _printed(run_table(result))
    assert (said or "") in table
    assert ("next to none" in table) == (said is not None)
    few = replace(result, rows=tuple(_with_drafts(row, 99) for row in result.rows[:2]))
    assert "next to none" not in markdown(report(few)), "297 tokens may be chance"


def _with_drafts(row: Row, drafts: int) -> Row:
    told = replace(row.acceptance, drafts=drafts, draft_tokens=3 * drafts, accepted_tokens=0)
    return replace(row, acceptance=told)


def _printed(table: RenderableType) -> str:
    """On one line."""
    console = Console(file=io.StringIO(), width=400)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_the_length_of_answers_that_are_not_told_one_by_one_is_their_mean() -> None:
    result = without_samples(whole(batches=(8,), datasets=("sharegpt",), prompts=20))
    asked = replace(result, load=replace(result.load, output_tokens=500))
    mean = (asked.rows[0].output_tokens or 0) / asked.rows[0].requests
    assert f"{asked.arms[0].name}'s in the mean ({mean:g})" in card(report(asked))
    silent = replace(asked, rows=tuple(replace(r, output_tokens=None) for r in asked.rows))
    assert "how long they were is not told" in card(report(silent))


def test_a_sweep_shows_its_schedule_in_every_form() -> None:
    curves = {3: {1: 1.9, 128: 0.77}, 1: {1: 1.5, 128: 0.9}}
    swept = report(sweep(curves, batches=(1, 128), prompts=20))
    for name, text in texts(swept).items():
        assert "num_speculative_tokens_per_batch_size" in text, name
    assert '<div class="bar">' in page(swept)


def test_a_bench_without_numbers_is_no_report() -> None:
    result = bench([PLAIN, Planted("eagle3", {})], batches=(8,), prompts=5)
    dead = replace(result, rows=tuple(replace(r, state="failed") for r in result.rows))
    with pytest.raises(UsageError, match="no row may be judged"):
        report(dead)


def test_rows_with_numbers_that_others_traffic_was_in_are_said_to_be_that() -> None:
    result = bench([PLAIN, Planted("eagle3", {})], batches=(8,), prompts=5)
    rows = (replace(r, state="contaminated", reason="other traffic: 9 tokens") for r in result.rows)
    with pytest.raises(UsageError) as told:
        report(replace(result, rows=tuple(rows)))
    assert "no row may be judged" in told.value.message
    assert "repeat 1 is contaminated: other traffic: 9 tokens" in str(told.value.hint)


def test_files_are_replaced_whole(made: Report, tmp_path: Path) -> None:
    names = {path.name for path in write(made, tmp_path / "outputs")}
    assert names == {"report.md", "report.html", "report.json", "skill-inference-server.md"}
    assert {p.name for p in (tmp_path / "outputs").iterdir()} == names
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        write(made, tmp_path / "file")
    with pytest.raises(UsageError, match=r"cannot write /proc/report\.md: "):
        write(made, Path("/proc"))


def test_tables_are_as_wide_as_their_heads(made: Report) -> None:
    swept = report(sweep({3: {1: 1.9, 8: 1.2}}, batches=(1, 8), prompts=10))
    for each in (made, swept):
        for section in sections(each):
            for block in section.blocks:
                if isinstance(block, Table):
                    assert {len(row) for row in block.rows} <= {len(block.columns)}, section.name


def test_an_open_loop_has_rates_instead_of_batches() -> None:
    result: Result = whole(batches=(1, 8), prompts=40)
    rows = tuple(replace(r, batch=None, rate=float(r.batch or 0)) for r in result.rows)
    load = replace(result.load, kind="open", batches=(), rates=(1.0, 8.0))
    text = markdown(report(replace(result, rows=rows, load=load)))
    assert "decodes" in text
    assert "| rate |" in text
    assert "Where it stops paying" not in text
