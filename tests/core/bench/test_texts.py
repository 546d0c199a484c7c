from __future__ import annotations

from speccli.core.bench.texts import every_text, keep, text_at

FIRST, SECOND = (8, None, 0), (1, None, 0)


def test_a_text_is_kept_once_and_again_where_it_is_another() -> None:
    texts = keep({}, [("s/1", "a"), ("s/2", "b")], FIRST)
    texts = keep(texts, [("s/1", "a"), ("s/2", "c")], SECOND)
    assert texts["s/1"] == {"text": "a"}
    assert [text_at(texts["s/2"], place) for place in (FIRST, SECOND)] == ["b", "c"]
    assert every_text(texts["s/2"]) == {"b", "c"}
    assert text_at(texts.get("s/3"), FIRST) is None


def test_an_answer_without_a_text_has_none() -> None:
    texts = keep({}, [("s/1", None), ("s/2", "a")], FIRST)
    assert keep(texts, [("s/2", None)], SECOND) == {"s/2": {"text": "a"}}
    older = {"text": None, "others": [{"batch": 1, "rate": None, "repeat": 0, "text": "a"}]}
    assert [text_at(older, place) for place in (FIRST, SECOND)] == [None, "a"]
    assert every_text(older) == {"a"}


def test_a_row_that_is_measured_again_replaces_its_texts() -> None:
    texts = keep(keep({}, [("s/1", "a")], FIRST), [("s/1", "b")], SECOND)
    again = keep(texts, [("s/1", "c")], SECOND)
    assert text_at(again["s/1"], SECOND) == "c"
    assert keep(again, [("s/1", "a")], SECOND)["s/1"] == {"text": "a"}
    first = keep(again, [("s/1", "d")], FIRST)["s/1"]
    assert [text_at(first, place) for place in (FIRST, SECOND)] == ["d", "c"]
