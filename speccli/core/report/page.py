"""`report.html`: one file, no script, nothing fetched; for a desk, a phone and paper."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

from speccli.core.report import words
from speccli.core.report.build import KINDS, Report
from speccli.core.report.markdown import footer, legend
from speccli.core.report.sections import (
    Bar,
    Block,
    Code,
    Pictures,
    Section,
    Table,
    matrix,
    sections,
)

_HUES = range(6)
_VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE")


def page(report: Report) -> str:
    """The whole document."""
    parts = sections(report)
    body = "\n".join([_first(report, parts), *(section_of(each) for each in parts)])
    made = f"{text_of(footer(report))} · made by specctl, {report.made:%Y-%m-%d}"
    running = f'<div class="running">{text_of(footer(report))}</div>'
    return shell(words.title(report), body, made, running)


def shell(title: str, body: str, foot: str, running: str = "") -> str:
    """A page around what it says; `body`, `foot` and `running` are HTML."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{text_of(title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n"
        f"<main>\n{body}\n</main>\n"
        f"<footer>{foot}</footer>\n{running}\n"
        "</body>\n</html>\n"
    )


def _style() -> str:
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    rules = []
    for i in _HUES:
        colour = f"var(--c{i})"
        rules += [
            f"svg .c{i} {{ stroke: {colour}; }}",
            f"svg .dot.c{i}, svg rect.c{i} {{ fill: {colour}; }}",
            f"svg text.c{i} {{ fill: {colour}; stroke: none; }}",
        ]
    return css.replace("HUES", "\n".join(rules))


def text_of(text: str) -> str:
    """Text of the page; controls have no place in it."""
    clean = "".join(c if c.isprintable() or c in "\n\N{NO-BREAK SPACE}" else " " for c in text)
    return escape(clean)


def answer_of(text: str) -> str:
    """An answer: its first sentence large, what qualifies it below."""
    first, rest = words.split(text)
    more = f'<p class="more">{text_of(rest)}</p>' if rest else ""
    return f'<p class="answer">{text_of(first)}</p>{more}'


def _words(text: str) -> str:
    """Text with `commands` in it."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text_of(text))


BESIDE = 4
"""Arms up to which what to do has room beside the verdicts."""


def _first(report: Report, parts: Iterable[Section]) -> str:
    """The answer, what it rests on, and what to do."""
    made = ['<section class="first">', f"<h1>{text_of(words.title(report))}</h1>"]
    badge = words.badge(report)
    if badge:
        made.append(f'<p class="badge">{KINDS[report.kind][0]} {text_of(badge)}</p>')
    made.append(answer_of(words.answer(report)))
    figures = "".join(
        f'<div class="figure"><dt>{text_of(each.name)}</dt><dd>{text_of(each.value)}</dd>'
        f'<dd class="note">{text_of(each.note)}</dd></div>'
        for each in words.figures(report)
    )
    if figures:
        made.append(f'<dl class="figures">{figures}</dl>')
    verdicts, stacked = "", ""
    if report.comparison is not None:
        stacked = " stacked" if len(report.comparison.arms) > BESIDE else ""
        told = f'<p class="small">{text_of(words.verdict_words(report.comparison))}</p>'
        verdicts = f"<div>{_table(matrix(report.comparison), 'matrix')}{told}</div>"
    actions = _points(words.actions(report))
    marks = f'<p class="small">{text_of(legend(report))}</p>'
    made.append(f'<div class="beside{stacked}">{verdicts}<div>{actions}{marks}</div></div>')
    links = "".join(f'<a href="#{each.name}">{text_of(each.title)}</a>' for each in parts)
    made += [f"<nav>{links}</nav>", "</section>"]
    return "\n".join(each for each in made if each)


def section_of(section: Section) -> str:
    """One part with its heading and the mark of its numbers."""
    kind = ""
    if section.kind:
        mark, told = KINDS[section.kind]
        kind = f'<span class="kind {section.kind}">{mark} {text_of(told)}</span>'
    head = f'<h2 id="{section.name}"><span>{text_of(section.title)}</span>{kind}</h2>'
    blocks = "\n".join(_block(each) for each in section.blocks)
    return f"<section>\n{head}\n{blocks}\n</section>"


def _block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{_words(block)}</p>"
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Code):
        return f"<pre><code>{text_of(block.text)}</code></pre>"
    if isinstance(block, Bar):
        return _bar(block)
    if isinstance(block, Pictures):
        return _pictures(block)
    return _points(block)


def _points(points: Iterable[str]) -> str:
    """A list."""
    items = "".join(f"<li>{_words(point)}</li>" for point in points)
    return f"<ul>{items}</ul>" if items else ""


def _pictures(block: Pictures) -> str:
    if not block.charts:
        return ""
    kind = {1: " one", 2: " two"}.get(len(block.charts), "")
    charts = "".join(
        f"<div><h3>{text_of(each.title)}</h3>{each.svg}</div>" for each in block.charts
    )
    return (
        f'<figure><div class="charts{kind}">{charts}</div>'
        f"<figcaption>{text_of(block.caption)}</figcaption></figure>"
    )


def _bar(block: Bar) -> str:
    parts = []
    for first, last, k in block.rows:
        grow = math.log(last + 1) - math.log(first)
        none = ' class="none"' if k == 0 else ""
        parts.append(
            f'<div{none} style="flex-grow:{grow:.3f}"><b>K={k}</b><span>{first}–{last}</span></div>'
        )
    return f'<div class="bar">{"".join(parts)}</div>'


def _table(table: Table, kind: str = "") -> str:
    if not table.rows:
        return ""
    head = "".join(
        f"<th{_key(table, i)}>{text_of(name)}</th>" for i, name in enumerate(table.columns)
    )
    rows: list[str] = []
    before: tuple[str, ...] | None = None
    for row in table.rows:
        cells = "".join(
            f"<td{_key(table, i)}>{'' if _again(table, row, before, i) else _cell(cell)}</td>"
            for i, cell in enumerate(row)
        )
        begins = before is not None and table.keys > 1 and row[0] != before[0]
        opened = '<tr class="first">' if begins else "<tr>"
        rows.append(f"{opened}{cells}</tr>")
        before = row
    classes = " ".join(filter(None, ("words" if table.words else "", kind)))
    named = f' class="{classes}"' if classes else ""
    notes = "".join(f'<p class="small">{_words(note)}</p>' for note in table.notes)
    return (
        f'<div class="scroll" tabindex="0"><table{named}><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{notes}"
    )


def _again(table: Table, row: tuple[str, ...], before: tuple[str, ...] | None, place: int) -> bool:
    """Whether a row's name begins as the one above it: then it stands there once."""
    return before is not None and place < table.keys - 1 and row[: place + 1] == before[: place + 1]


def _key(table: Table, place: int) -> str:
    named = place < table.keys or table.columns[place] == "verdict"
    return ' class="key"' if named and not table.words else ""


def _cell(cell: str) -> str:
    """A verdict gets its colour beside its mark and word."""
    for word in _VERDICTS:
        if f" {word}" in cell:
            mark, _, rest = cell.partition(word)
            chip = f'<span class="verdict {word}">{text_of(mark)}{word}</span>'
            return f"{chip}<span>{text_of(rest.strip())}</span>" if rest else chip
    return text_of(cell)
