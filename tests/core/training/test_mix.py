"""Sources with shares, and prompts that a test asks as well."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from speccli.core.bench.datasets import Prompt
from speccli.core.errors import UsageError
from speccli.core.training.mix import mixed, sources
from speccli.core.training.near import Known


def prompts(name: str, count: int) -> list[Prompt]:
    return [
        Prompt(f"{name}{i}", ({"role": "user", "content": f"{name} {i}"},)) for i in range(count)
    ]


def mixture(*parts: tuple[list[Prompt], float | None]) -> list[Prompt]:
    return [prompt for _, prompt in mixed(parts)[0]]


def sorts(made: list[Prompt]) -> Counter[str]:
    return Counter(prompt.id[0] for prompt in made)


def test_every_beginning_holds_each_share() -> None:
    made = mixture((prompts("a", 900), 3.0), (prompts("b", 900), 1.0))
    for end in (4, 40, 100, 400):
        assert sorts(made[:end]) == {"a": 3 * end // 4, "b": end // 4}


def test_it_ends_where_a_share_cannot_be_kept() -> None:
    parts = (prompts("a", 30), 0.75), (prompts("b", 900), 0.25)
    assert sorts(mixture(*parts)) == {"a": 30, "b": 10}
    assert mixed(parts)[1] == 0
    assert mixed([(prompts("a", 30), 0.75), (prompts("b", 10), 0.25)])[1] is None


def test_without_shares_all_are_used_and_mixed_by_their_size() -> None:
    made = mixture((prompts("a", 90), None), (prompts("b", 10), None))
    assert sorts(made) == {"a": 90, "b": 10}
    assert sorts(made[:50]) == {"a": 45, "b": 5}
    assert [p.id for p in mixture((prompts("a", 3), None))] == ["a0", "a1", "a2"]
    assert mixed([([], None)]) == ([], None)


def test_a_share_is_read_and_a_file_with_an_equals_sign_is_a_file(tmp_path: Path) -> None:
    odd = tmp_path / "a=0.5"
    odd.write_text("")
    assert sources(["x.jsonl=0.7", "sharegpt=3"]) == (("x.jsonl", 0.7), ("sharegpt", 3.0))
    assert sources(["x.jsonl", str(odd)]) == (("x.jsonl", None), (str(odd), None))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a=0", "b=1"], "no share"),
        (["a=-1"], "no share"),
        (["a=nan"], "no share"),
        (["a=inf"], "no share"),
        (["a=much"], "no share"),
        (["=1"], "no share"),
        (["a=1", "b"], "b has no share"),
        (["a=1", "a=2"], "twice"),
    ],
)
def test_what_is_no_share_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sources(texts)


ASKED = "Write a bash script that waits until port 8000 answers, for at most 300 seconds, please."


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (ASKED.upper(), True),
        (ASKED.replace("8000", "9000"), True),
        (f"{ASKED} Be brief.", True),
        ("Write a bash script that counts the pods of a node and prints the result.", False),
        ("Write a bash script", False),
        ("yes", False),
    ],
)
def test_near_is_the_same_words_in_the_same_order(text: str, near: bool) -> None:
    assert Known([ASKED, "continue"]).has(text) is near


def test_short_prompts_are_the_same_or_not() -> None:
    assert Known(["Go  on"]).has("go on")
    assert not Known(["go on then"]).has("go on now")


def templated(count: int, seed: int, words: int = 36) -> list[str]:
    """Prompts of one application: the same preamble, and some words of their own."""
    rng = random.Random(seed)
    preamble = " ".join(f"p{n}" for n in range(words))
    return [
        f"{preamble} " + " ".join(f"w{rng.randrange(3000)}" for _ in range(14))
        for _ in range(count)
    ]


@pytest.mark.parametrize("words", [36, 300])
def test_what_a_whole_source_has_in_common_makes_no_two_prompts_near(words: int) -> None:
    tests, source = templated(50, 1, words), templated(400, 2, words)
    known = Known(tests, among=source)
    assert not [text for text in source if known.has(text)]
    assert known.has(tests[3].upper())
    last = tests[3].rpartition(" ")
    assert known.has(f"{last[0]} other"), "what they do not have in common still counts"


def test_a_question_asked_again_in_a_small_source_is_no_preamble() -> None:
    again = [f"{ASKED} {n}" for n in range(15)]
    assert all(Known([ASKED], among=again).has(text) for text in again)


def test_many_prompts_of_one_template_are_compared_in_moments() -> None:
    tests, source = templated(1000, 1), templated(5000, 2)
    begun = time.process_time()
    known = Known(tests, among=source)
    assert not any(known.has(text) for text in source)
    assert time.process_time() - begun < 5, "about a second, and ten where each is met with all"
