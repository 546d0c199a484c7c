"""`report.md`: the report for a terminal, a repository or a chat."""

from __future__ import annotations

import re

from speccli.core.report import words
from speccli.core.report.build import KINDS, Report
from speccli.core.report.sections import Bar, Block, Code, Pictures, Table, matrix, sections


def markdown(report: Report) -> str:
    """The whole document."""
    parts = [f"# {plain(words.title(report))}"]
    badge = words.badge(report)
    if badge:
        parts.append(f"> **{plain(badge)}**")
    parts.append(answer(words.answer(report)))
    parts += [table(_figures(report)), _points(words.actions(report))]
    if report.comparison is not None:
        parts += [table(matrix(report.comparison)), plain(words.verdict_words(report.comparison))]
    parts.append(legend(report))
    for section in sections(report):
        mark = f" {KINDS[section.kind][0]}" if section.kind else ""
        parts.append(f"## {plain(section.title)}{mark}")
        parts += [block(each) for each in section.blocks]
    parts.append(f"*{footer(report)} · made by specctl*")
    return "\n\n".join(part for part in parts if part) + "\n"


def answer(text: str) -> str:
    """An answer: its first sentence bold, what qualifies it behind."""
    first, rest = words.split(text)
    return " ".join([f"**{plain(first)}**", *([plain(rest)] if rest else [])])


def legend(report: Report) -> str:
    """What the marks in this report mean."""
    kinds = [report.kind, "given", "estimated"]
    return " · ".join(f"{KINDS[kind][0]} {KINDS[kind][1]}" for kind in kinds)


def footer(report: Report) -> str:
    """Provenance in one line."""
    result = report.result
    engines = {
        f"{arm.engine.get('kind')} {arm.engine.get('version')}"
        for arm in result.arms
        if arm.engine.get("version")
    }
    gpu = (result.provenance.gpu or {}).get("name")
    known = [KINDS[report.kind][1], *sorted(engines), gpu, result.created[:10], *report.files]
    return " · ".join(str(each) for each in known if each)


def _figures(report: Report) -> Table:
    found = words.figures(report)
    return Table(
        ("", "", ""), tuple((each.name, each.value, each.note) for each in found), words=True
    )


def block(each: Block) -> str:
    """One block."""
    if isinstance(each, str):
        return plain(each)
    if isinstance(each, Table):
        return table(each)
    if isinstance(each, Code):
        return f"```sh\n{each.text.replace('```', '` ` `')}\n```"
    if isinstance(each, Bar):
        return " · ".join(f"**K={k}** at {first}–{last}" for first, last, k in each.rows)
    if isinstance(each, Pictures):
        return ""  # the tables say the same
    return _points(each)


def _points(points: tuple[str, ...] | list[str]) -> str:
    return "\n".join(f"- {plain(point)}" for point in points)


def table(found: Table) -> str:
    """A table with its notes."""
    if not found.rows:
        return ""
    lines = [_row(found.columns)]
    lines.append(
        "|".join(
            [
                "",
                *(
                    "---" if found.words or i < found.keys else "--:"
                    for i in range(len(found.columns))
                ),
                "",
            ]
        )
    )
    lines += [_row(row) for row in found.rows]
    notes = "\n".join(f"<sub>{plain(note)}</sub><br>" for note in found.notes)
    return "\n".join(lines) + (f"\n\n{notes}" if notes else "")


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(plain(cell).replace("|", "\\|") for cell in cells) + " |"


def plain(text: str) -> str:
    """One line, without what Markdown or HTML would take for its own.

    Brackets alone are intervals and stay; what would make links, pictures or fences of them does
    not.
    """
    flat = "".join(char if char.isprintable() else " " for char in text)
    for char in "\\*_":
        flat = flat.replace(char, f"\\{char}")
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace("![", "\\!\\[")
    flat = re.sub(r"\](?=[(:\[])", r"\\]", flat)
    return re.sub(r"`{2,}|~{3,}", lambda run: "".join(f"\\{c}" for c in run.group()), flat)
