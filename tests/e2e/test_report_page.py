"""The report in a real browser: desk and phone, light and dark, and on paper."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from speccli.core.report.page import page
from tests.support.benches import sweep
from tests.support.chromium import browser
from tests.support.reports import report, whole

pytestmark = pytest.mark.chromium

CHECKS = Path(__file__).with_name("report_page.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(report(whole())), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_it_renders_without_complaint_and_reads(file: Path, width: int, dark: bool) -> None:
    async with browser() as tab:
        await tab.open(file.as_uri(), width=width, dark=dark)
        assert tab.complaints == []
        assert tab.requests == [file.as_uri()], "nothing else is fetched"
        assert await tab.ask("document.documentElement.scrollWidth") == width, "no sideways scroll"
        assert await tab.ask("document.querySelectorAll('svg.chart').length") == 8
        assert await tab.ask(f"{CHECKS}\noverlapping()") == []
        assert await tab.ask(f"{CHECKS}\nfaint()") == []
        background = await tab.ask("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(17, 21, 26)" if dark else "rgb(255, 255, 255)")
        smallest = await tab.ask(
            "Math.min(...[...document.querySelectorAll('svg text')]"
            ".map(t => t.getBoundingClientRect().height))"
        )
        assert smallest > 9, "words of charts keep their size"


async def test_a_sweep_renders_too(tmp_path: Path) -> None:
    curves = {5: {1: 2.2, 128: 0.6}, 3: {1: 1.9, 128: 0.77}, 1: {1: 1.5, 128: 0.9}}
    path = tmp_path / "sweep.html"
    path.write_text(page(report(sweep(curves, batches=(1, 128), prompts=20))), encoding="utf-8")
    async with browser() as tab:
        await tab.open(path.as_uri(), width=390)
        assert tab.complaints == []
        assert await tab.ask(f"{CHECKS}\noverlapping()") == []
        assert await tab.ask("document.querySelector('.bar').scrollWidth <= 362")


async def test_verdicts_of_three_arms_that_cannot_tell_fit_a_phone(tmp_path: Path) -> None:
    path = tmp_path / "once.html"
    path.write_text(page(report(whole(prompts=10, repeats=1))), encoding="utf-8")
    async with browser() as tab:
        await tab.open(path.as_uri(), width=390)
        assert await tab.ask("document.documentElement.scrollWidth") == 390


async def test_it_prints(file: Path) -> None:
    async with browser() as tab:
        await tab.open(file.as_uri(), width=1280)
        paper = await tab.paper()
        assert paper.startswith(b"%PDF")
        assert 4 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 14
        assert tab.complaints == []
