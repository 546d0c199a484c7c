from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.sources.redact import redact, redact_line, redact_page, redact_url


@pytest.mark.parametrize(
    ("label", "secret"),
    [
        ('hf_token="hf_abcdefghijklmnopqrstuv"', "hf_abcdef"),
        ('api_key="k-123"', "k-123"),
        ('apikey="k-123"', "k-123"),
        ('password="1234"', "1234"),
        ('token="99887766"', "99887766"),
        ('api_tokens="a,b"', "a,b"),
        ('client_secret="s"', '"s"'),
        ('Authorization="Basic bWU6cHc="', "bWU6"),
        ('env="HF=hf_abcdefghijklmnopqrstuv"', "hf_abcdef"),
        ('cmd="--api-key sk-abcdefghijklmnop1234"', "sk-abc"),
        ('aws="AKIAABCDEFGHIJKLMNOP"', "AKIAABC"),
        ('jwt="eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.sig-nature"', "eyJ"),
        ('header="Bearer abcdef123456"', "abcdef123456"),
        ('url="https://me:hunter2@h/path"', "hunter2"),
        ('url="https://h/p?api_key=zzz&x=1"', "zzz"),
        ('url="https://h/p?x=1&X-Amz-Signature=zzz"', "zzz"),
        ('password="a\\"b"', 'a\\"b'),
    ],
)
def test_secrets_are_removed_from_labels(label: str, secret: str) -> None:
    line = f'vllm:cache_config_info{{engine="0",{label},block_size="16"}} 1.0'
    shown = redact_line(line)
    assert secret not in shown
    assert shown.startswith('vllm:cache_config_info{engine="0",')
    assert shown.endswith(',block_size="16"} 1.0')


@pytest.mark.parametrize(
    "line",
    [
        'vllm:x{max_num_batched_tokens="8192"} 1',
        'vllm:x{max_tokens="None",num_speculative_tokens="4"} 1',
        'vllm:x{tokenizer="org/model",tokenizer_mode="auto"} 1',
        'vllm:generation_tokens_total{engine="0",model_name="llama"} 12.0',
        'vllm:request_params_max_tokens_bucket{le="1.0"} 3.0',
        'vllm:x{model_name="org/key-value-7b",url="https://h:8000/p?x=1"} 1',
        "process_start_time_seconds 1.79e9",
        "# HELP vllm:x Tokens generated; see https://docs.vllm.ai/",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert redact_line(line) == line


def test_a_comment_is_read_too() -> None:
    assert "hunter2" not in redact_line("# HELP x scraped from https://me:hunter2@h/")


def test_messages_lose_credentials_of_urls_and_headers() -> None:
    shown = redact("cannot GET https://me:pw@h/x?token=abc with Authorization: Basic bWU6cHc=")
    assert all(secret not in shown for secret in ("pw@", "abc", "bWU6cHc"))
    assert "https://h/x" in shown


def test_an_address_that_is_not_quite_one_loses_its_credentials_too() -> None:
    assert redact_url("http://me:p/w@h:x") == "http://h:x"
    assert redact_url("me:pw@h:99999") == "h:99999"


@given(
    st.lists(
        st.one_of(
            st.text(),
            st.builds(
                'vllm:x{{{}="{}",le="0.1"}} {}'.format,
                st.sampled_from(["token", "engine", "api_key", "max_tokens"]),
                st.sampled_from(["1", "hf_abcdefghijklmnopqrstuv", "https://me:pw@h/", "}", " "]),
                st.sampled_from(["1", "1.5e9", "NaN", "+Inf", "1 1795975219", "Bearer abcdefghij"]),
            ),
        )
    )
)
def test_a_page_is_redacted_as_its_lines_are(lines: list[str]) -> None:
    page = "\n".join(lines)
    wanted = "\n".join(map(redact_line, page.split("\n")))
    assert redact_page(page) == redact_page(page) == wanted


def test_a_page_seen_before_costs_next_to_nothing() -> None:
    heads = [f'vllm:x_bucket{{engine="0",le="{i}",model_name="org/llama"}}' for i in range(700)]
    pages = ["\n".join(f"{head} {n}.0" for head in heads) for n in range(40)]
    began = time.process_time()
    redact_page(pages[0])
    first = time.process_time() - began
    began = time.process_time()
    for page in pages[1:]:
        redact_page(page)
    assert (time.process_time() - began) / 39 < first / 5, "0.3 ms against 15 ms"


@pytest.mark.parametrize(
    "piece", ["a", "a/", "token_", "?key", "://a", 'x="', "eyJaaaaaaaaaaa.", "://"]
)
def test_a_very_long_line_takes_no_time_to_speak_of(piece: str) -> None:
    line = f'm{{a="{piece * (300_000 // len(piece))}"}} 1'
    began = time.perf_counter()
    redact_line(line)
    assert time.perf_counter() - began < 3, "quadratic: it took minutes"
