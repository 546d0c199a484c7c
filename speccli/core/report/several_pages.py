"""The first page over several reports, as Markdown and as HTML, beside a folder for each."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from speccli.core.report import several as told
from speccli.core.report.build import KINDS
from speccli.core.report.markdown import answer, block, plain
from speccli.core.report.page import answer_of, section_of, shell, text_of
from speccli.core.report.several import Several
from speccli.core.report.write import save, texts


def write(several: Several, folder: Path, made: datetime, *, force: bool = False) -> list[Path]:
    """`README.md` and `index.html`, and a folder with the whole report of each model.

    Raises:
        UsageError: one is somebody else's, and `force` is not given; or it cannot be written.
    """
    files = {
        folder / name / file: text
        for name, report in several.parts
        for file, text in texts(report).items()
    }
    files[folder / "README.md"] = markdown(several)
    files[folder / "index.html"] = page(several, made)
    return save(files, force=force)


def markdown(several: Several) -> str:
    """For a repository."""
    parts = [f"# {told.title(several)}"]
    parts += [f"> **{plain(badge)}**" for badge in told.badges(several)]
    parts.append("\n".join(f"- {answer(each)}" for each in told.answers(several)))
    parts.append(told.legend(several))
    for section in told.sections(several):
        mark = f" {KINDS[section.kind][0]}" if section.kind else ""
        parts.append(f"## {section.title}{mark}")
        parts += [block(each) for each in section.blocks]
    links = (f"[{name}]({name}/report.md)" for name, _ in several.parts)
    parts.append(f"The whole report of each: {', '.join(links)}.")
    parts.append("*made by specctl*")
    return "\n\n".join(part for part in parts if part) + "\n"


def page(several: Several, made: datetime) -> str:
    """For everybody else."""
    first = [f"<h1>{text_of(told.title(several))}</h1>"]
    first += [f'<p class="badge">{text_of(badge)}</p>' for badge in told.badges(several)]
    first.append(f'<div class="many">{"".join(map(answer_of, told.answers(several)))}</div>')
    first.append(f'<p class="small">{text_of(told.legend(several))}</p>')
    links = "".join(
        f'<a href="{name}/report.html">{text_of(name)}: all of it</a>' for name, _ in several.parts
    )
    first.append(f"<nav>{links}</nav>")
    body = f'<section class="first">{"".join(first)}</section>'
    body += "\n".join(section_of(each) for each in told.sections(several))
    return shell(told.title(several), body, f"made by specctl, {made:%Y-%m-%d}")
