"""A bench from the first row to the last, against simulated servers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from operator import add, sub
from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench import asked
from speccli.core.bench.form import read, write
from speccli.core.bench.measure import measure
from speccli.core.bench.progress import Progress
from speccli.core.bench.provenance import relative
from speccli.core.bench.run import run
from speccli.core.errors import ExitCode, UnreachableError, UsageError
from speccli.core.sim import Change
from speccli.core.sim.server import SimServer
from speccli.core.values import Number
from tests.core.bench.world import bench, fleet, plan, replica


async def test_arms_are_paired_and_what_they_drafted_is_theirs(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    told = replica(per_request_metrics="summary")
    async with SimServer(fleet(replica("none"), told)) as server:
        urls = dict(zip(("baseline", "eagle3"), server.urls, strict=True))
        result = await bench(out, urls, batch="1,3", repeats=2)
    assert result == read(out)
    assert result.complete
    assert result.simulated
    assert [row.state for row in result.rows] == ["ok"] * 8
    plain, drafted = (result.rows_of(name) for name in ("baseline", "eagle3"))
    assert [row.samples.prompt for row in plain] == [row.samples.prompt for row in drafted]
    for row in drafted:
        assert row.acceptance.source == "per-request"
        assert row.acceptance.drafts == sum(row.samples.steps or ())
        assert row.acceptance.rate.value == pytest.approx(
            sum(row.samples.accepted or ()) / sum(row.samples.drafted or ())
        )
        assert row.acceptance.rate.reason is None  # answers and counters agree
        assert row.output_tokens == sum(row.samples.output_tokens)
    for row in plain:
        assert row.acceptance.source == "none"
        assert row.acceptance.tokens_per_step.value == pytest.approx(1.0)
    assert result.arm("baseline").baseline
    assert result.arm("eagle3").method == "eagle3"
    assert result.datasets[0].prompt_tokens_mean.n == 6
    assert asked.exit_code(result) is ExitCode.OK


async def test_rows_of_one_load_follow_each_other_and_take_turns_at_being_first(
    tmp_path: Path,
) -> None:
    async with SimServer(fleet(replica("none"), replica())) as server:
        urls = dict(zip(("a", "b"), server.urls, strict=True))
        spec = plan(tmp_path / "b.json", urls, batch="1,2", repeats=2).spec
    assert [(key.arm, key.batch, key.repeat) for key in spec.rows()] == [
        ("a", 1, 0),
        ("b", 1, 0),
        ("b", 2, 0),
        ("a", 2, 0),
        ("a", 1, 1),
        ("b", 1, 1),
        ("b", 2, 1),
        ("a", 2, 1),
    ]


async def test_counters_tell_of_acceptance_where_answers_do_not(tmp_path: Path) -> None:
    async with SimServer(fleet(replica())) as server:
        result = await bench(tmp_path / "b.json", {"eagle3": server.urls[0]})
    (row,) = result.rows
    counted = row.acceptance.counters
    assert row.acceptance.source == "counters"
    assert counted is not None
    assert row.acceptance.draft_tokens == counted.draft_tokens
    assert len(row.acceptance.by_position) == 3
    assert row.samples.accepted is None


async def test_other_traffic_makes_a_row_contaminated(tmp_path: Path) -> None:
    async with SimServer(fleet(replica(rate=40.0))) as server:
        result = await bench(tmp_path / "b.json", {"eagle3": server.urls[0]}, requests="12")
    (row,) = result.rows
    assert row.state == "contaminated"
    assert row.contaminated
    assert "not ours" in (row.reason or "")
    assert row.acceptance.rate.state == "unknown"
    assert not row.usable
    assert asked.exit_code(result) is ExitCode.WARNING


async def test_other_traffic_does_not_touch_what_answers_tell_of_themselves(
    tmp_path: Path,
) -> None:
    noisy = replica(rate=40.0, per_request_metrics="summary")
    async with SimServer(fleet(noisy)) as server:
        result = await bench(tmp_path / "b.json", {"eagle3": server.urls[0]}, requests="12")
    (row,) = result.rows
    assert row.state == "contaminated"
    assert row.acceptance.source == "per-request"
    assert row.acceptance.tokens_per_step.state == "unknown"


async def test_several_servers_behind_one_address_have_no_counters(tmp_path: Path) -> None:
    turns = fleet(replica(seed=1), replica(seed=2))
    async with SimServer(turns) as server, _Balancer(server.urls) as url:
        result = await bench(tmp_path / "b.json", {"eagle3": url})
    (row,) = result.rows
    assert row.requests == 6
    assert row.state == "ok"
    assert row.contaminated is None
    assert row.contaminated_reason == row.acceptance.rate.reason
    assert row.acceptance.rate.state == "unknown"
    assert "several" in (row.acceptance.rate.reason or "")


async def test_a_server_that_dies_leaves_what_was_measured_and_names_the_rest(
    tmp_path: Path,
) -> None:
    out = tmp_path / "b.json"
    mortal = replica()
    async with SimServer(fleet(replica("none"), mortal)) as server:
        urls = dict(zip(("baseline", "eagle3"), server.urls, strict=True))
        made = plan(out, urls, batch="1,2", request_deadline="3s", output_tokens=100)
        said: list[str] = []
        gone = Change("restart", 3600.0)

        def say(text: str) -> None:
            said.append(text)
            if "[2/4]" in text:
                mortal.engines[0].schedule(mortal.engines[0].clock() + 0.05, gone)

        result = await run(made.spec, Progress(say))
        failed = [row for row in result.rows if row.state == "failed"]
        assert [row.arm for row in failed] == ["eagle3"]
        assert failed[0].reason
        assert len(result.rows_of("baseline")) == 2
        assert not result.complete
        assert asked.exit_code(result) is ExitCode.CRITICAL
        assert any("FAILED" in line and "eagle3, batch 2" in line for line in said)
    assert read(out) == result


async def test_resuming_measures_what_is_missing_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica("none"), replica())) as server:
        urls = dict(zip(("baseline", "eagle3"), server.urls, strict=True))
        whole = await bench(out, urls, batch="1,2")
        kept = tuple(row for row in whole.rows if row.key != ("eagle3", 2, None, "builtin", 0))
        write(out, replace(whole, rows=kept, complete=False, finished=None))
        said: list[str] = []
        made = plan(out, urls, batch="1,2", resume=True)
        again = await run(made.spec, Progress(said.append), made.before)
    assert said[0].startswith("1 rows to measure: eagle3")
    assert again.complete
    assert {row.key: row.started for row in kept}.items() <= {
        row.key: row.started for row in again.rows
    }.items()
    assert [row for row in again.rows if row in kept] == list(kept)


async def test_no_row_meets_the_prompts_of_another_in_the_prefix_cache(tmp_path: Path) -> None:
    out, salts = tmp_path / "b.json", list[str]()

    async def salted(*given: Any, salt: str, **_: Any) -> Any:
        salts.append(salt)
        return given[2].empty("failed", "not measured"), []

    async with SimServer(fleet(replica("none"))) as server:
        urls = {"baseline": server.urls[0]}
        for resume in (False, True):
            made = plan(out, urls, batch="1,2", resume=resume)
            await run(made.spec, Progress(), made.before, salted)
    assert len(salts) == len(set(salts)) == 4


async def test_a_server_that_was_not_started_here_is_not_said_to_have_this_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def described() -> dict[str, Any]:
        return {"name": "a workstation's"}

    monkeypatch.setattr("speccli.core.bench.gpu_readers.describe", described)
    async with SimServer(fleet(replica("none"))) as server:
        result = await bench(tmp_path / "b.json", {"baseline": server.urls[0]}, batch="1")
    assert result.provenance.gpu is None
    assert "not started here" in str(result.provenance.gpu_reason)
    assert "give --nvml where they are this machine's, or --dcgm URL" in str(
        result.rows[0].power_w.reason
    )


async def test_another_baseline_or_stand_in_is_another_bench(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica("none"), replica())) as server:
        urls = dict(zip(("baseline", "eagle3"), server.urls, strict=True))
        await bench(out, urls, batch="1", stand_in="a small one")
        plan(out, urls, batch="1", resume=True, stand_in="a small one")
        with pytest.raises(UsageError, match="stand-in differ"):
            plan(out, urls, batch="1", resume=True)
        with pytest.raises(UsageError, match="baseline differ"):
            plan(out, urls, batch="1", resume=True, stand_in="a small one", baseline="eagle3")


async def test_another_bench_in_the_file_is_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica("none"))) as server:
        urls = {"baseline": server.urls[0]}
        await bench(out, urls, batch="1")
        with pytest.raises(UsageError, match="holds another bench: load differ"):
            plan(out, urls, batch="2", resume=True)
        with pytest.raises(UsageError, match="is there already"):
            plan(out, urls, batch="1")
    with pytest.raises(UsageError, match=r"there is no .*x\.json"):
        plan(tmp_path / "x.json", urls, resume=True)


def test_a_place_that_takes_no_file_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*b\.json: Not a directory"):
        plan(blocked / "b.json", {"baseline": "http://127.0.0.1:9"})


async def test_another_model_behind_an_arm_is_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica("none"), replica(), replica("ngram"))) as server:
        plain, eagle, ngram = server.urls
        result = await bench(out, {"baseline": plain, "draft": eagle}, batch="1")
        write(out, replace(result, rows=result.rows[:1], complete=False))
        made = plan(out, {"baseline": plain, "draft": ngram}, batch="1", resume=True)
        with pytest.raises(UsageError, match="arm draft: its method is ngram, and was eagle3"):
            await run(made.spec, Progress(), made.before)


async def test_a_price_of_0_of_an_older_file_is_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica())) as server:
        urls = {"draft": server.urls[0]}
        result = await bench(out, urls, batch="1")
        write(out, replace(result, arms=(replace(result.arms[0], gpu_hour_usd=0.0),), rows=()))
        await bench(out, urls, batch="1", resume=True)
    assert read(out).complete


async def test_a_row_that_cannot_have_been_measured_does_not_cost_the_file(
    tmp_path: Path,
) -> None:
    """Counters of a server may say anything; the other rows must stay readable."""
    out = tmp_path / "b.json"

    async def odd(*args: Any, **named: Any) -> Any:
        row, answers = await measure(*args, **named)
        if row.batch == 2:
            row = replace(row, acceptance=replace(row.acceptance, rate=Number.known(1.5)))
        return row, answers

    async with SimServer(fleet(replica())) as server:
        made = plan(out, {"draft": server.urls[0]}, batch="1,2")
        await run(made.spec, Progress(), made.before, odd)
    assert [row.state for row in read(out).rows] == ["ok", "failed"]
    assert "its row.acceptance.rate is 1.5" in str(read(out).rows[1].reason)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"endpoint": "http://10.0.0.9:8000"}, "its address is http"),
        ({"gpu_count": 4}, "its number of GPUs is 1, and was 4"),
        ({"gpu_hour_usd": 2.5}, "its GPU hour is None USD, and was 2.5"),
        ({"engine": {"kind": "sglang", "version": None}}, "its engine is vllm, and was sglang"),
    ],
)
async def test_another_server_behind_an_arm_is_not_gone_on_with(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica())) as server:
        urls = {"draft": server.urls[0]}
        result = await bench(out, urls, batch="1")
        write(out, replace(result, arms=(replace(result.arms[0], **changed),), rows=()))
        made = plan(out, urls, batch="1", resume=True)
        with pytest.raises(UsageError, match=said):
            await run(made.spec, Progress(), made.before)


async def test_going_on_keeps_every_command_and_the_machine(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica("none"))) as server:
        urls = {"baseline": server.urls[0]}
        first = await bench(out, urls, batch="1", command="specctl bench run")
        write(out, replace(first, rows=()))
        again = await bench(out, urls, batch="1", resume=True, command="specctl bench run --resume")
        assert again.provenance.commands == ("specctl bench run", "specctl bench run --resume")
        elsewhere = replace(first.provenance, host={"cpu": "another", "cores": 96})
        write(out, replace(first, rows=(), provenance=elsewhere))
        with pytest.raises(UsageError, match="begun on another machine"):
            await bench(out, urls, batch="1", resume=True)


def test_paths_below_the_working_folder_are_told_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = f"specctl bench run --draft eagle3={tmp_path}/head --out /elsewhere{tmp_path}/b.json"
    assert relative(command) == (
        f"specctl bench run --draft eagle3=head --out /elsewhere{tmp_path}/b.json"
    )


async def test_an_interrupted_bench_is_a_whole_file(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica("none"))) as server:
        made = plan(out, {"baseline": server.urls[0]}, batch="1", repeats=50)
        one_row = asyncio.Event()
        progress = Progress(lambda text: one_row.set() if "[1/50]" in text else None)
        task = asyncio.create_task(run(made.spec, progress))
        await asyncio.wait_for(one_row.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    result = read(out)
    assert not result.complete
    assert result.finished is None
    assert result.rows[0].state == "ok"


async def test_nobody_there_is_told_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    with pytest.raises(UnreachableError, match="connect refused"):
        await bench(out, {"baseline": "http://127.0.0.1:9"})
    assert not out.exists()


async def test_an_open_loop_counts_from_when_a_request_was_due(tmp_path: Path) -> None:
    async with SimServer(fleet(replica(max_num_seqs=1))) as server:
        result = await bench(
            tmp_path / "b.json", {"eagle3": server.urls[0]}, batch=None, rate="200", requests="20"
        )
    (row,) = result.rows
    assert row.rate == 200
    # One at a time at 200 arrivals a second: the last one waits until all the others were served.
    told = row.samples
    served = sum(map(sub, told.e2e_s, told.ttft_s)) * 19 / 20
    assert max(map(add, told.start_s, told.ttft_s)) > 0.9 * served > 2 * told.start_s[-1]
    assert told.start_s[-1] == pytest.approx(20 / 200, rel=1.0)


async def test_answers_of_a_fixed_length_are_asked_for(tmp_path: Path) -> None:
    async with SimServer(fleet(replica())) as server:
        made = plan(tmp_path / "b.json", {"eagle3": server.urls[0]}, output_tokens=17)
        result = await run(made.spec, Progress())
    assert set(result.rows[0].samples.output_tokens) == {17}
    assert any("acceptance comes out lower" in note for note in made.notes)


class _Balancer:
    """Sends each connection to the next server, as a Service does."""

    def __init__(self, urls: list[str]) -> None:
        self._ports = [int(url.rpartition(":")[2]) for url in urls]
        self._turn = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        port = self._ports[self._turn % len(self._ports)]
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
