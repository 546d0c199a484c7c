"""Texts that a bench keeps: of each prompt the first, and beside it those that are not the same.

An answer at another load or in another repeat mostly is the same to the letter; where it is not,
that is what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Place = tuple[int | None, float | None, int]
"""Batch, rate, repeat."""
Kept = Mapping[str, Any]
"""Of one prompt: `{"text", "others": [{"batch", "rate", "repeat", "text"}]}`."""


def keep(
    texts: Mapping[str, Kept], answers: Iterable[tuple[str, str | None]], place: Place
) -> dict[str, Kept]:
    """An arm's texts with those of one row more.

    Args:
        texts: Those so far, by `dataset/id`.
        answers: `dataset/id` and text of each answer of the row; one without a text is left out.
        place: Of the row; measured again, its texts replace the former ones.
    """
    found = dict(texts)
    for name, text in answers:
        if text is None:
            continue
        known = dict(found.get(name, {"text": text}))
        others = [each for each in known.pop("others", ()) if _place(each) != place]
        if text != known["text"]:
            batch, rate, repeat = place
            others.append({"batch": batch, "rate": rate, "repeat": repeat, "text": text})
        found[name] = known | ({"others": others} if others else {})
    return found


def text_at(kept: Kept | None, place: Place) -> str | None:
    """What was written there; None where nothing of the prompt was kept."""
    if kept is None:
        return None
    others = (each["text"] for each in kept.get("others", ()) if _place(each) == place)
    text = next(others, kept.get("text"))
    return text if isinstance(text, str) else None


def every_text(kept: Kept) -> set[str]:
    """All that was written to the prompt."""
    texts = (kept.get("text"), *(each["text"] for each in kept.get("others", ())))
    return {text for text in texts if isinstance(text, str)}


def _place(other: Mapping[str, Any]) -> Place:
    return other.get("batch"), other.get("rate"), other.get("repeat", 0)
