from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from speccli.core.report.svg import ROOM, Canvas, Scale, beside, decades, nice, plain, shortened


def test_a_logarithmic_scale_gives_every_doubling_the_same_room() -> None:
    scale = Scale(1, 128, 0, 700, log=True)
    assert [scale(2.0**i) for i in range(8)] == pytest.approx([100 * i for i in range(8)])


def test_what_lies_outside_stays_at_the_border() -> None:
    scale = Scale(0, 10, 0, 100)
    assert scale(50) == pytest.approx(102)
    assert scale(-50) == pytest.approx(-2)


def test_ticks_are_round_and_inside() -> None:
    assert nice(0.7, 2.1) == [0.75, 1.0, 1.25, 1.5, 1.75, 2.0]
    assert nice(0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert decades(0.08, 3) == [0.1, 0.2, 0.5, 1, 2]
    assert decades(0.05, 40) == [0.1, 1, 10]
    assert [plain(x) for x in (0.05, 1.25, 10000)] == ["0.05", "1.25", "10,000"]


def test_labels_are_kept_apart_and_inside() -> None:
    canvas = Canvas("t", "n")
    for i in range(6):
        canvas.label(200, 215 + i, f"arm {i}", "c1")
    places = [
        float(y) for y in re.findall(r'<text class="label c1" x="[^"]+" y="([^"]+)"', canvas.svg())
    ]
    assert len(places) == 6
    assert all(b - a >= 14.9 for a, b in zip(places, places[1:], strict=False))
    assert places[-1] <= canvas.upwards[0] + 5


def test_names_with_markup_in_them_are_text() -> None:
    canvas = Canvas("<b>", 'a "quoted" & <script>')
    canvas.label(1, 50, "<script>alert(1)</script>", "c1")
    canvas.mark(1, 1, "dot", "c1", "a < b")
    root = ElementTree.fromstring(canvas.svg())
    assert root.attrib["aria-label"] == '<b>. a "quoted" & <script>'
    assert not root.findall(".//script")


@pytest.mark.parametrize("name", ["none", "draft-model", "draft-model-8b", "suffix-decoding-tuned"])
def test_a_name_beside_its_line_is_whole_or_says_that_it_is_not(name: str) -> None:
    """A bold letter is up to 7.6 pixels wide where the page's fonts are not there."""
    shown = shortened(name, ROOM)
    canvas = Canvas("t", "n", right=max(80.0, beside([name])))
    assert canvas.across[1] + 9 + 7.6 * len(shown) <= canvas.width
    assert shown == name if len(name) <= 15 else shown.endswith("…")


def test_long_names_are_cut_to_the_room() -> None:
    assert shortened("a-very-long-arm-name", 70).endswith("…")
    assert shortened("eagle3", 70) == "eagle3"
