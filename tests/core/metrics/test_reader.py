"""Bodies in, counters out: right, or missing with a word and a reason."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccli.core.metrics.counters import INF, Counters
from speccli.core.metrics.reader import Reader, Reading
from tests.core.pages import STARTED, TARGET, Engine, Hist, page, spec_page

GEN = 'vllm:generation_tokens_total{engine="0",model_name="m"}'
KV = "vllm:kv_cache_usage_perc"


def read(body: bytes | str, reader: Reader | None = None, **rest: Any) -> Reading:
    raw = body.encode() if isinstance(body, str) else body
    return (reader or Reader()).read(TARGET, raw, 1.0, **rest)


def only(reading: Reading) -> Counters:
    [engine] = reading.engines
    return engine


def slots(engine: Counters) -> dict[str, float]:
    """Every slot by a name of its own."""
    found = {name: engine.values[i] for name, i in engine.layout.index.items()}
    for name, at in engine.layout.histograms.items():
        for i, bound in enumerate(at.bounds):
            found[f"{name}<={bound}"] = engine.values[at.start + i]
        if at.sum >= 0:
            found[f"{name}.sum"] = engine.values[at.sum]
    return found


def plain(reading: Reading) -> tuple[Any, ...]:
    """All of a reading, comparable whatever objects it is made of."""
    engines = [
        (
            (c.target, c.engine, c.kind, c.at, c.model, c.started, c.partial),
            (c.several_api_servers, c.simulated, c.version, sorted(c.sources.items())),
            sorted(slots(c).items()),
            sorted(c.gauges.items()),
        )
        for c in reading.engines
    ]
    return sorted(engines, key=repr), reading.word, reading.reason


def small(engine: str = "0", k: int = 2, seed: int = 0) -> Engine:
    """An engine with short ladders, so that its page is short."""
    hist = {name: Hist((0.01, 1.0)) for name in ("ttft", "itl", "queue")}
    made = Engine(k=k, engine=engine, hist=hist)
    made.serve(random.Random(seed), 10, 3)
    return made


# ---- what a page says ----


def test_every_count_of_a_page_is_found() -> None:
    engine = Engine(k=3)
    engine.serve(random.Random(7), 200, 6)
    seen = only(read(page(engine)))
    assert seen.get("drafts") == engine.drafts
    assert seen.get("draft_tokens") == 3 * engine.drafts
    assert [seen.get(f"accepted_at:{i}") for i in range(3)] == engine.accepted
    assert seen.get("accepted_tokens") == sum(engine.accepted)
    assert seen.get("generation_tokens") == engine.generation
    assert seen.get("finished") == sum(engine.finished.values())
    assert seen.get("steps") == engine.steps
    found = slots(seen)
    for name, hist in engine.hist.items():
        assert found[f"{name}<={INF}"] == hist.n
        assert found[f"{name}.sum"] == hist.sum
        assert found[f"{name}<={hist.bounds[0]}"] == hist.counts[0]
    assert seen.gauges == {"running": 6, "waiting": engine.waiting, "kv_cache_usage": engine.kv}
    assert (seen.started, seen.layout.positions, seen.model) == (STARTED, 3, "m")


def test_created_gauges_are_never_counted() -> None:
    reading = read(spec_page(drafts=200, drafted=1000, accepted=800, created=True))
    assert slots(only(reading)) == {"drafts": 200, "draft_tokens": 1000, "accepted_tokens": 800}
    alone = 'vllm:spec_decode_num_drafts_created{engine="0"} 1.79e9\n'
    assert read(alone).word == "MISSING"


@pytest.mark.parametrize("spelling", ["1", "1.0", "1e0", "+1", "1.00", "10e-1"])
def test_a_bucket_is_known_by_the_number_in_le(spelling: str) -> None:
    name = "vllm:time_to_first_token_seconds"
    body = "".join(
        f'{name}_bucket{{engine="0",le="{le}"}} {n}\n'
        for le, n in [("0.5", 3), (spelling, 4), ("+Inf", 5)]
    )
    seen = only(read(body + f'{name}_count{{engine="0"}} 5\n'))
    assert seen.layout.histograms["ttft"].bounds == (0.5, 1.0, INF)
    twice = body + f'{name}_bucket{{engine="0",le="1"}} 4\n'
    assert slots(only(read(twice)))["ttft<=1.0"] == 4


def test_a_bucket_given_twice_with_two_values_is_a_conflict_however_le_is_written() -> None:
    name = "vllm:time_to_first_token_seconds_bucket"
    lines = [("1", 4), ("1.0", 5), ("+Inf", 5)]
    body = "".join(f'{name}{{engine="0",le="{le}"}} {n}\n' for le, n in lines)
    reading = read(spec_page(drafts=1, drafted=1, accepted=1) + body)
    assert reading.word == "CONFLICT"
    assert "ttft" not in only(reading).layout.names


def test_a_histogram_without_an_inf_bucket_takes_its_count_for_it() -> None:
    name = "vllm:time_to_first_token_seconds"
    body = f'{name}_bucket{{engine="0",le="0.5"}} 3\n{name}_count{{engine="0"}} 5\n'
    at = only(read(body)).layout.histograms["ttft"]
    assert (at.bounds, at.sum) == ((0.5, INF), -1)


def test_a_bucket_whose_le_is_no_number_is_not_a_bucket() -> None:
    name = "vllm:time_to_first_token_seconds_bucket"
    body = "".join(f'{name}{{engine="0",le="{le}"}} 5\n' for le in ("NaN", "x", "0.5", "+Inf"))
    assert only(read(body)).layout.histograms["ttft"].bounds == (0.5, INF)


def test_a_gauge_repeated_per_process_is_one_fact_the_largest() -> None:
    lines = [
        f'{KV}{{engine="0",model_name="m",pid="{pid}"}} {0.6530455880475035 if pid == 273 else 0.0}'
        for pid in range(271, 279)
    ]
    seen = only(read("\n".join(lines) + "\n"))
    assert seen.gauges["kv_cache_usage"] == 0.6530455880475035
    assert seen.several_api_servers


def test_finished_requests_are_summed_over_their_reasons() -> None:
    lines = [
        f'vllm:request_success_total{{engine="0",finished_reason="{reason}"}} {n}'
        for reason, n in [("stop", 5), ("length", 3), ("abort", 1)]
    ]
    assert only(read("\n".join(lines) + "\n")).get("finished") == 9


def test_engines_of_one_server_are_kept_apart() -> None:
    engines = [small("0", seed=1), small("1", seed=2), small("10", seed=3)]
    seen = {c.engine: c for c in read(page(*engines)).engines}
    assert {name: c.get("drafts") for name, c in seen.items()} == {
        e.engine: e.drafts for e in engines
    }


def test_models_of_one_engine_are_kept_apart() -> None:
    one, two = small(seed=1), small(seed=2)
    two.model = "other"
    seen = {c.engine: c for c in read(page(one, two)).engines}
    assert {(name, c.model) for name, c in seen.items()} == {("0:m", "m"), ("0:other", "other")}
    assert seen["0:other"].get("drafts") == two.drafts


def test_of_two_names_of_one_fact_one_is_read_and_named() -> None:
    old, new = "vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"

    def family(name: str) -> str:
        return (
            f'{name}_bucket{{engine="0",le="0.1"}} 7\n{name}_bucket{{engine="0",le="+Inf"}} 9\n'
            f'{name}_count{{engine="0"}} 9\n{name}_sum{{engine="0"}} 1.5\n'
        )

    for body, source in [
        (family(old), old),
        (family(old) + family(new), new),
        (family(new) + family(old), new),
        (family(new), new),
    ]:
        seen = only(read(body))
        assert slots(seen) == {"itl<=0.1": 7, f"itl<={INF}": 9, "itl.sum": 1.5}
        assert seen.sources["itl"] == source


def test_sglang_is_read_by_its_own_names() -> None:
    body = (
        'sglang:num_running_reqs{model_name="m",dp_rank="3"} 4\n'
        'sglang:spec_accept_length{model_name="m",dp_rank="3"} 2.5\n'
        'sglang:generation_tokens_total{model_name="m",dp_rank="3"} 100\n'
    )
    seen = only(read(body))
    assert (seen.kind, seen.engine, seen.get("generation_tokens")) == ("sglang", "3", 100)
    assert seen.gauges == {"running": 4, "acceptance_length": 2.5}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda b: b.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(lambda b: b"\xef\xbb\xbf" + b, id="bom"),
        pytest.param(lambda b: b"\n\n" + b.replace(b"\n", b"\n\n"), id="blank-lines"),
        pytest.param(lambda b: b"# a comment\n" + b + b"# EOF\n", id="comments"),
        pytest.param(lambda b: b.removesuffix(b"\n"), id="no-newline-at-the-end"),
        pytest.param(lambda b: b.replace(b"} ", b"}\t"), id="tabs"),
        pytest.param(lambda b: b.replace(b"} ", b"}"), id="no-space-before-the-value"),
        pytest.param(lambda b: b.replace(b"} ", b"}  "), id="two-spaces"),
        pytest.param(lambda b: b.replace(b"\n", b" 1790000000123\n"), id="timestamps"),
        pytest.param(lambda b: b.replace(b"\n", b" \n"), id="trailing-spaces"),
        pytest.param(lambda b: b.replace(b'",', b'" , '), id="spaces-between-labels"),
        pytest.param(lambda b: b"\n".join(reversed(b.split(b"\n"))), id="upside-down"),
        pytest.param(lambda b: b + b"\n".join(b.split(b"\n")[4:9]) + b"\n", id="said-twice"),
    ],
)
def test_the_same_page_written_otherwise_reads_the_same(change: Callable[[bytes], bytes]) -> None:
    lines = [x for x in page(small(), small("1")).split(b"\n") if not x.startswith(b"#")]
    body = b"\n".join(lines)
    reader = Reader()
    expected = plain(read(body))
    for _ in range(3):  # exactly, then by what was remembered of it
        assert plain(read(change(body), reader)) == expected


# ---- pages that are not whole ----


def short_page() -> bytes:
    """A page with something of every kind on it, two engines in part of it, few comments."""
    lines = page(small("0", seed=1), small("1", seed=2)).split(b"\n")
    kept = [
        line
        for i, line in enumerate(lines)
        if (not line.startswith(b"#") or i < 5)
        and not (b"queue" in line or (b'"1"' in line and b"bucket" in line and b"token_l" in line))
        and not (b"_created" in line and b"prompt" not in line)
    ]
    return b"\n".join(kept)


def cuts(body: bytes) -> Iterator[bytes]:
    return (body[:end] for end in range(len(body)))


def test_a_page_cut_anywhere_gives_right_values_or_none() -> None:
    body = short_page()
    whole = {c.engine: c for c in read(body).engines}
    reader = Reader()
    read(body, reader)
    for cut in cuts(body):
        reading = read(cut, reader, truncated=True)
        assert reading.word == "TRUNCATED" or (reading.word == "MISSING" and not cut)
        for seen in reading.engines:
            true = whole[seen.engine]
            assert seen.partial is not None
            assert seen.partial.startswith("TRUNCATED")
            assert slots(seen).items() <= slots(true).items()
            assert seen.gauges.items() <= true.gauges.items()
            assert seen.started in {None, STARTED}


def test_a_value_cut_in_the_middle_is_not_believed() -> None:
    body = f"{GEN} 12345\n"
    assert only(read(body)).get("generation_tokens") == 12345
    for cut in (body[:-1], body[:-3]):
        reading = read(cut, truncated=True)
        assert reading.engines == ()
        assert reading.word == "TRUNCATED"


def test_a_cut_that_no_transport_told_of_is_seen_where_a_line_is_left_broken() -> None:
    body = page(small()).decode()
    for broken in (
        body + 'vllm:x_total{engine="0',
        body + 'vllm:generation_tokens_total{engine="0',
    ):
        assert read(broken).word == "TRUNCATED"
    whole = short_page()
    for end in range(0, len(whole), 7):
        read(whole[:end])  # nothing is raised


def test_a_sum_is_not_told_from_some_of_its_series() -> None:
    lines = [
        f'vllm:request_success_total{{engine="{engine}",finished_reason="{reason}"}} {n}\n'
        for engine in "01"
        for reason, n in [("stop", 5), ("length", 3)]
    ]
    head = f"{GEN} 10\n"
    whole = read(head + "".join(lines))
    assert [c.get("finished") for c in whole.engines] == [8, 8]
    for bad, word in [("NaN", "NAN"), ("oops", "GARBLED"), ("-3", "GARBLED")]:
        reading = read(head + "".join(lines).replace(" 3\n", f" {bad}\n", 1))
        assert reading.word == word
        assert reading.engines[0].get("finished") is None
        assert reading.engines[0].get("generation_tokens") == 10
    cut = read(head + "".join(lines[:1]), truncated=True)
    assert only(cut).get("finished") is None


# ---- bodies that are no pages ----


@pytest.mark.parametrize(
    ("body", "word", "reason"),
    [
        pytest.param("", "MISSING", "empty", id="empty"),
        pytest.param("\r\n \n", "MISSING", "empty", id="blank"),
        pytest.param("<!DOCTYPE html><html>", "AUTH", "HTML", id="html"),
        pytest.param("\ufeff \n<html>", "AUTH", "HTML", id="html-after-a-bom"),
        pytest.param('{"error": "no"}', "MISSING", "not a metrics page", id="json"),
        pytest.param("up 1\n", "MISSING", "1 samples, none of an engine", id="another-exporter"),
        pytest.param("# only comments\n", "MISSING", "not a metrics page", id="comments"),
        pytest.param('vllm:generation_tokens_total{engine="0', "TRUNCATED", "label", id="cut"),
        pytest.param(f"{GEN} NaN\n", "NAN", "NaN or infinite", id="only-nan"),
        pytest.param(f"{GEN} x\n", "GARBLED", "not a number", id="only-garbage"),
        pytest.param(f"{GEN} -1\n", "GARBLED", "cannot be -1", id="a-negative-count"),
        pytest.param(f"{GEN} 1e300\n", "GARBLED", "cannot be 1e", id="a-count-past-counting"),
        pytest.param(f"{GEN} 1\n{GEN} 2\n", "CONFLICT", "as 1 and as 2", id="only-a-conflict"),
        pytest.param(b"\x00\xff\xfe\n" * 9, "MISSING", "not a metrics page", id="binary"),
    ],
)
def test_a_body_without_engines_says_why(body: bytes | str, word: str, reason: str) -> None:
    reading = read(body)
    assert (reading.engines, reading.word) == ((), word)
    assert reason in (reading.reason or "")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "nan"])
def test_a_gauge_that_is_no_number_is_dropped_and_counted(value: str) -> None:
    reading = read(f"{GEN} 5\n" + f'{KV}{{engine="0"}} {value}\n')
    seen = only(reading)
    assert reading.word == "NAN"
    assert "1 value(s) not finite" in (seen.partial or "")
    assert KV in (seen.partial or "")
    assert seen.gauges == {}
    assert seen.get("generation_tokens") == 5


def test_one_sample_with_two_values_is_a_conflict_and_dropped() -> None:
    drafts = "vllm:spec_decode_num_drafts_total"
    reading = read(f'{GEN} 5\n{drafts}{{engine="0"}} 1\n{drafts}{{engine="0"}} 2\n')
    assert reading.word == "CONFLICT"
    assert "is given as 1 and as 2" in (reading.reason or "")
    assert slots(only(reading)) == {"generation_tokens": 5}


def test_one_sample_given_twice_alike_is_one_sample() -> None:
    reading = read(f"{GEN} 5\n{GEN} 5.0\n")
    assert (only(reading).get("generation_tokens"), reading.word) == (5, None)


# ---- the fast path ----

VALUES = st.sampled_from(
    [
        "0",
        "1",
        "7.0",
        "12",
        "1e3",
        "0.25",
        "NaN",
        "+Inf",
        "-1",
        "1_0",
        "x",
        "",
        "1e400",
        "9e15",
        "1e16",
    ]
)


@st.composite
def rewritten(draw: st.DrawFn, lines: list[str]) -> bytes:
    """A page like `lines`, with a few things done to it."""
    lines = list(lines)
    for _ in range(draw(st.integers(0, 3))):
        if not lines:
            break
        i = draw(st.integers(0, len(lines) - 1))
        key, _, value = lines[i].rpartition(" ")
        what = draw(st.integers(0, 12))
        if what <= 3:
            lines[i] = f"{key} {draw(VALUES)}"
        elif what == 4:
            del lines[i]
        elif what == 5:
            lines.insert(draw(st.integers(0, len(lines))), lines[i])
        elif what == 6:
            lines[draw(st.integers(0, len(lines) - 1))] = lines[i]
        elif what == 7:
            lines.append(lines.pop(i))
        elif what == 8:
            lines[i] = f"{key} {value} {draw(st.integers(1, 3))}"
        elif what == 9:
            lines[i] = draw(
                st.sampled_from([f"{key}\t{value}", f"{key}{value}", f"{key}  {value}"])
            )
        elif what == 10:
            lines.insert(i, draw(st.sampled_from(["", " ", "junk", "5", "# c", "a b", f"{value}"])))
        elif what == 11:
            lines[i] = lines[i].replace('"0"', '"1"')
        else:
            lines[i] = f"{key} \r{value}\v"
    eol = draw(st.sampled_from(["\n", "\n", "\n", "\r\n"]))
    end = draw(st.sampled_from([eol, eol, ""]))
    bom = draw(st.sampled_from(["", "", "\ufeff"]))
    return (bom + eol.join(lines) + end).encode()


def base_lines() -> list[str]:
    name = "vllm:time_to_first_token_seconds"
    return [
        "# HELP vllm:generation_tokens_total Number of tokens 5",
        "process_start_time_seconds 100.5",
        'vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="1"} 0.5',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="2"} 0.25',
        f"{GEN} 5",
        'vllm:generation_tokens_total{engine="1",model_name="m"} 6',
        'vllm:request_success_total{engine="0",model_name="m",finished_reason="stop"} 3',
        'vllm:request_success_total{engine="0",model_name="m",finished_reason="a b"} 4',
        'http_requests_total{handler="/x y"} 17',
        *spec_page(drafts=2, drafted=4, accepted=3, positions=(2, 1)).split("\n")[:-1],
        f'{name}_bucket{{engine="0",le="1.0"}} 1',
        f'{name}_bucket{{engine="0",le="+Inf"}} 2',
        f'{name}_count{{engine="0"}} 2',
        f'{name}_sum{{engine="0"}} 3',
    ]


@given(st.data())
@settings(max_examples=200)
def test_what_is_remembered_of_a_page_never_changes_what_is_read(data: st.DataObject) -> None:
    lines = base_lines()
    reader = Reader()
    for _ in range(4):
        body = data.draw(rewritten(lines))
        truncated = data.draw(st.booleans()) and data.draw(st.booleans())
        target = data.draw(st.sampled_from(["a", "b"]))
        fast = reader.read(target, body, 1.0, truncated=truncated)
        exact = Reader().read(target, body, 1.0, truncated=truncated)
        assert plain(fast) == plain(exact), body


def test_a_count_that_stands_still_is_not_taken_for_its_timestamp() -> None:
    reader = Reader()
    for stamp in (1790000000000, 1790000001000):
        assert only(read(f"{GEN} 5 {stamp}\n", reader)).get("generation_tokens") == 5


def test_a_line_lost_while_another_comes_twice_is_not_a_zero() -> None:
    drafts = 'vllm:spec_decode_num_drafts_total{engine="0"} 7'
    reader = Reader()
    read(f"{GEN} 5\n{drafts}\n", reader)
    assert slots(only(read(f"{drafts}\n{drafts}\n", reader))) == {"drafts": 7}


@pytest.mark.parametrize("kinds", [1, 12])
def test_pages_of_a_mixed_fleet_read_the_same_in_any_order(kinds: int) -> None:
    reader = Reader()
    for turn in range(3):
        for i in range(24):
            engine = small(k=1 + i % kinds, seed=i + turn)
            reading = reader.read(f"http://host{i}", page(engine), float(turn))
            assert only(reading).get("drafts") == engine.drafts
            assert only(reading).layout.positions == engine.k


def test_a_forgotten_target_is_read_like_a_new_one() -> None:
    reader = Reader()
    read(page(small()), reader)
    reader.forget(TARGET)
    reader.forget("http://never-seen")
    assert plain(read(page(small()), reader)) == plain(read(page(small())))


def test_a_page_of_very_many_series_is_read_exactly_every_time() -> None:
    rest = "".join(f'other_total{{path="{i}"}} 1\n' for i in range(25_000))
    reader = Reader()
    for n in (5, 6):
        assert only(read(f"{rest}{GEN} {n}\n", reader)).get("generation_tokens") == n


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_reading(body: bytes) -> None:
    for truncated in (False, True):
        reading = read(body, truncated=truncated)
        assert reading.engines or reading.reason


@given(st.binary(max_size=40), st.data())
def test_any_bytes_inside_a_page_end_in_a_reading(junk: bytes, data: st.DataObject) -> None:
    body = "\n".join(base_lines()).encode()
    at = data.draw(st.integers(0, len(body)))
    reader = Reader()
    read(body, reader)
    broken = body[:at] + junk + body[at + data.draw(st.integers(0, 40)) :]
    for reading in (read(broken, reader), read(broken, reader)):
        for engine in reading.engines:
            assert all(0 <= value < INF for value in engine.values)


def test_a_page_of_several_servers_has_as_many_engines() -> None:
    page = "".join(
        f'vllm:generation_tokens_total{{engine="0",instance="{host}"}} {n}\n'
        for host, n in (("10.0.0.4:8000", 4), ("10.0.0.5:8000", 5))
    )
    reading = Reader().read("http://federation", page.encode(), 1.0)
    found = {c.engine: c.get("generation_tokens") for c in reading.engines}
    assert found == {"10.0.0.4:8000/0": 4, "10.0.0.5:8000/0": 5}
