"""The first page over several reports, as Markdown and as HTML, beside a folder for each."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from speccli.core.errors import UsageError
from speccli.core.report import several as told
from speccli.core.report.build import KINDS
from speccli.core.report.markdown import block, plain
from speccli.core.report.page import section_of, shell, text_of
from speccli.core.report.several import Several
from speccli.core.report.write import write as write_one


def write(several: Several, folder: Path, made: datetime) -> list[Path]:
    """`README.md` and `index.html`, and a folder with the whole report of each model.

    Raises:
        UsageError: they cannot be written.
    """
    files = []
    for name, report in several.parts:
        files += write_one(report, folder / name)
    for name, text in (("README.md", markdown(several)), ("index.html", page(several, made))):
        path = folder / name
        part = folder / f".{name}.part"
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        files.append(path)
    return files


def markdown(several: Several) -> str:
    """For a repository."""
    parts = [f"# {told.title(several)}"]
    parts += [f"> **{plain(badge)}**" for badge in told.badges(several)]
    parts.append("\n".join(f"- **{plain(each)}**" for each in told.answers(several)))
    parts.append(told.legend(several))
    for section in told.sections(several):
        mark = f" {KINDS[section.kind][0]}" if section.kind else ""
        parts.append(f"## {section.title}{mark}")
        parts += [block(each) for each in section.blocks]
    links = (f"[{name}]({name}/report.md)" for name, _ in several.parts)
    parts.append(f"The whole report of each: {', '.join(links)}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def page(several: Several, made: datetime) -> str:
    """For everybody else."""
    first = [f"<h1>{text_of(told.title(several))}</h1>"]
    first += [f'<p class="badge">{text_of(badge)}</p>' for badge in told.badges(several)]
    first += [f'<p class="answer">{text_of(each)}</p>' for each in told.answers(several)]
    first.append(f'<p class="small">{text_of(told.legend(several))}</p>')
    links = "".join(
        f'<a href="{name}/report.html">{text_of(name)}: all of it</a>' for name, _ in several.parts
    )
    first.append(f"<nav>{links}</nav>")
    body = f'<section class="first">{"".join(first)}</section>'
    body += "\n".join(section_of(each) for each in told.sections(several))
    return shell(told.title(several), body, f"made by specctl, {made:%Y-%m-%d}")
