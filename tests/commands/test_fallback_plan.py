"""`specctl fallback plan`: what a person reads at night, and what a script does."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from speccli.core.bench.form import write
from speccli.core.bench.results import Statistic
from speccli.core.deploy.place import place
from speccli.core.fallback.ladder import ladder
from speccli.core.fallback.means import Means, Start
from speccli.core.fallback.measured import Bench, Expected, Faster
from speccli.core.fallback.moves import Planned, plan_move
from speccli.core.fallback.present import Heard, Present
from speccli.core.fallback.rungs import Step, lessened
from speccli.core.findings.base import Finding
from speccli.core.kube.record import Record, Revision, plain_recipe
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Draft, Recipe
from speccli.core.sources.recording import Recorder
from speccli.core.values import Number
from speccli.main import app
from speccli.tables.fallback import plan_table
from tests.core.findings.bodies import A, B, answer, good
from tests.support.benches import PLAIN, Noise, Planted, bench
from tests.support.golden import assert_golden

DATA = Path(__file__).parents[1] / "data"
EAGLE = load("llama-3.3-70b-eagle3-h200", ["cost.gpu_hour_usd=3.6"])
ARMS = [
    PLAIN,
    Planted("eagle3", {8: 1.7, 64: 1.24}),
    Planted("eagle3-k1", {8: 1.4, 64: 1.2}, k=1),
    Planted("ngram", {8: 1.1, 64: 0.9}, "ngram", 3),
]
QUIET = Noise(run=0.002, drift=0.005, prompt=0.02, request=0.01)


def specctl(*words: str) -> Result:
    return CliRunner().invoke(app, ["fallback", "plan", *words])


def _record(*recipes: Recipe) -> Record:
    made = [
        Revision(
            number=len(recipes) - at,
            recipe=plain_recipe(recipe),
            options={},
            objects_hash="",
            objects=(),
            image=None,
            state="ready",
            at="2026-11-30T01:00:00+00:00",
            by="me@here",
            tool="0.1.0",
            ended="2026-11-30T01:02:30+00:00",
        )
        for at, recipe in enumerate(recipes)
    ]
    return Record("chat", made[0], tuple(made[1:]))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local deployment that does not run."""
    state = tmp_path / "state"
    monkeypatch.setenv("SPECCTL_STATE", str(state))
    place(state, "chat").write(_record(EAGLE))
    return state


class _Warm:
    """A standby keeps n-gram warm."""

    def warm(self) -> str | None:
        return "ngram"

    def means(self, step: Step) -> Means:
        start = Start(140.0, 170.0, "measured", "2 pods that serve now")
        words = "traffic goes to chat-standby: 2 of 2 servers are warm, no restart"
        return Means("traffic", words, 0, 3, 0, start)


class _Measured(Bench):
    """Figures that no change of the statistics moves."""

    name = "rungs of 30 November"

    def expected(self, draft: Draft) -> Expected:
        rate, tail = {"eagle3": (9050, 7.5), "ngram": (6529, 10.8), "none": (7315, 10.1)}[
            draft.method
        ]
        if draft.k == 1:
            return Expected.unknown("rungs of 30 November has no arm of it")
        return Expected(
            Statistic(rate, rate * 0.98, rate * 1.02, 3),
            Statistic(tail / 1e3, tail / 1.1e3, tail / 0.9e3, 180),
            Statistic(0.219, 0.197, 0.228, 180),
            Statistic(1000 / rate, 1000 / rate / 1.02, 1000 / rate / 0.98, 3),
            "measured",
            draft.method,
            64,
            ("measured with 0.31.0; the recipe runs 0.32.0",),
        )

    def faster(self, one: Draft, other: Draft) -> Faster:
        first, second = self.expected(one).tokens_per_s, self.expected(other).tokens_per_s
        if first.value is None or second.value is None:
            return Faster(Statistic.unknown("not measured"))
        ratio = first.value / second.value
        return Faster(Statistic(ratio, ratio * 0.98, ratio * 1.02, 3))


def _planned(*, measured: bool = False, warm: bool = True) -> Planned:
    evidence = "accepted 61 of 12,400 draft tokens (0.005) over 5.0 s, n=4133 drafts"
    findings = (
        Heard(Finding("ZERO_ACCEPTANCE", "critical", "fleet", evidence, "c", "a"), "live"),
        Heard(
            Finding("QUEUE_WAIT", "warning", "fleet", "waits 2,100 ms, 200 ms wanted", "c", "a"),
            "alert check, 200 s ago",
        ),
    )
    number = Number.unknown("no engine tells")
    if measured:
        number = Number.known(61.0, reason="live over 5.0 s")
    found = ladder(_record(EAGLE))
    supply = _Warm() if warm else "not allowed: may not list nodes"
    present = Present(findings, number, number)
    kind = _Measured if measured else Bench
    return plan_move(found, present, kind(None, EAGLE, number), supply)


def _text(plan: Planned, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(plan_table(plan))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 120])
def test_the_plan_as_it_is_read(width: int) -> None:
    """First what to do, in words; then the line to type; then all about it; then the rungs."""
    assert_golden(f"fallback.plan.{width}.txt", _text(_planned(measured=True), width))


def test_the_page_shows_the_plan_as_it_is() -> None:
    page = (DATA.parents[1] / "docs" / "fallback.md").read_text()
    assert _text(_planned(measured=True), 80) in page


@pytest.mark.parametrize("width", [80, 120])
def test_the_plan_of_which_little_is_known(width: int) -> None:
    assert_golden(f"fallback.plan.unknown.{width}.txt", _text(_planned(warm=False), width))


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, _text(_planned(), width).splitlines())) <= width


def test_the_move_comes_first_and_the_command_second() -> None:
    first, second, *_ = _text(_planned(), 200).splitlines()
    assert first.startswith("Move chat from eagle3, K = 3 to ngram, K = 3: ZERO_ACCEPTANCE")
    assert second.strip() == "specctl fallback apply chat --rung ngram"


# ---- the command ----


def test_a_deployment_that_does_not_answer_has_a_ladder_all_the_same(here: Path) -> None:
    done = specctl("chat", "-o", "json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert [each["rung"] for each in told["down"]] == ["k1", "ngram", "none"]
    assert told["advised"] is False
    assert told["findings_unknown"]
    assert told["batch"]["value"] is None
    assert told["move"]["means"]["mechanism"] == "restart"
    assert told["move"]["means"]["start_s"]["low"] == 150.0


def test_a_finding_by_hand_and_a_bench_decide(here: Path, tmp_path: Path) -> None:
    file = tmp_path / "rungs.json"
    write(file, bench(ARMS, batches=(8, 64), noise=QUIET, prompts=20))
    words = ("chat", "--finding", "ZERO_ACCEPTANCE", "--bench", str(file), "-o", "json")
    small = json.loads(specctl(*words, "--batch", "8").stdout)
    large = json.loads(specctl(*words, "--batch", "64").stdout)
    assert small["move"]["rung"] == "ngram"
    assert large["move"]["rung"] == "none"
    passed = {each["rung"]: each["passed_over"] for each in large["down"]}
    assert "no speculation is 1.1" in passed["ngram"]
    assert large["bench"] == "planted"
    assert large["expected"]["output_tokens_per_s"]["low"] is not None


def test_a_recording_tells_findings_and_batch(here: Path) -> None:
    done = specctl("chat", "--replay", str(DATA / "golden" / "fleet.jsonl"), "-o", "json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["findings_unknown"] is None
    assert told["batch"]["value"] > 0
    assert "a recording" in told["batch"]["reason"]


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        (("main", "standby"), "nothing speaks against it"),
        (
            ("main", "main"),
            "VERSION_SKEW moves nothing: engines that should be alike differ: a rollout, under "
            "way or half done",
        ),
    ],
)
def test_a_standby_that_differs_from_main_is_no_rollout(
    here: Path, tmp_path: Path, pools: tuple[str, str], said: str
) -> None:
    file = tmp_path / "chat.jsonl"
    recorder = Recorder(file, interval_s=60, source="scrape")
    for at in (0, 60):
        served = zip((A, B), ("eagle3", "ngram"), pools, strict=True)
        recorder.write(
            [
                replace(answer(at, target, good(1 + 20 * at), info={"method": method}), pool=pool)
                for target, method, pool in served
            ]
        )
    recorder.close()
    done = specctl("chat", "--replay", str(file))
    assert done.exit_code == 0, done.stderr
    assert said in " ".join(done.stdout.replace("│", " ").split())


def test_the_price_may_be_given(here: Path, tmp_path: Path) -> None:
    file = tmp_path / "rungs.json"
    write(file, bench(ARMS, batches=(8,), noise=QUIET, prompts=20))
    words = ("chat", "--bench", str(file), "--batch", "8", "-o", "json")
    usual, dear = (
        json.loads(specctl(*words, *more).stdout)["expected"]["usd_per_1m_output"]["value"]
        for more in ((), ("--gpu-hour-usd", "36"))
    )
    assert dear == pytest.approx(10 * usual)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody", "--to", "local"), "no local deployment nobody"),
        (("chat", "--finding", "LOW"), "--finding LOW: no finding of that name"),
        (("chat", "--rung", "k9"), "k9 is no step down"),
        (("chat", "--batch", "0"), "--batch 0: at least 1"),
        (("chat", "--bench", "none.json"), "cannot read none.json"),
        (("chat", "--endpoint", "http://a", "--replay", "b"), "one source at a time"),
    ],
)
def test_what_cannot_be_is_a_usage_error(here: Path, words: tuple[str, ...], said: str) -> None:
    done = specctl(*words)
    assert done.exit_code == 64, done.stderr
    assert done.stdout == ""
    assert said in done.stderr


def test_at_the_bottom_the_way_back_is_told(here: Path) -> None:
    place(here, "chat").write(_record(lessened(EAGLE, "none"), EAGLE))
    done = specctl("chat")
    assert done.exit_code == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first == "Leave chat at no speculation: there is nothing below it"
    assert any("specctl fallback restore chat (revision 1)" in line for line in rest)
    assert "fallback apply" not in done.stdout
