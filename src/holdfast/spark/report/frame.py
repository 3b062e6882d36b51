"""The pieces that a report's page is put together of, in the forms of the dashboard. HTML as text; what comes from
elsewhere goes through `safe` exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from .words import safe

MOST_SHOWN = 20  # rows of a table, or reasons, that the page does not fold


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


class Head(NamedTuple):
    """A column: its name, and how it looks: n is a number, mid from a tablet on, wide from a desktop on."""

    name: str
    look: str = ""


Cell = str | Html


def text_of(cell: Cell) -> Html:
    return cell if isinstance(cell, Html) else Html(safe(cell))


def document(title: str, body: str) -> str:
    """Everything that a browser needs in one file: no script, nothing loaded."""
    files = resources.files("holdfast")
    style = files.joinpath("server", "page", "static", "style.css").read_text()
    own = files.joinpath("spark", "report", "style.css").read_text()
    sprite = files.joinpath("server", "page", "static", "sprite.svg").read_text()
    sprite = sprite.replace(' xmlns="http://www.w3.org/2000/svg"', "")  # HTML needs no name for it
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{safe(title)}</title>'
        f"<style>\n{style}\n{own}</style></head><body>\n"
        f"{sprite}\n{body}</body></html>\n"
    )


def icon(name: str) -> Html:
    return Html(f'<svg class="i" aria-hidden="true"><use href="#i-{name}"/></svg>')


def card(title: str, body: str, *, note: Cell = "", id: str = "", footer: str = "") -> Html:
    """A block with a heading; `note` stands to its right."""
    name = f' id="{id}"' if id else ""
    said = f"<p>{text_of(note)}</p>" if note else ""
    foot = f"<footer>{footer}</footer>" if footer else ""
    return Html(f'<section class="card"{name}><header><h2>{safe(title)}</h2>{said}</header>{body}{foot}</section>')


def tile(name: str, value: Cell, note: Cell = "", tone: str = "") -> Html:
    return Html(
        f'<div class="tile {tone}"><span>{safe(name)}</span><strong>{text_of(value)}</strong>'
        f"<small>{text_of(note)}</small></div>"
    )


def table(heads: Sequence[Head], rows: Sequence[Sequence[Cell]], *, label: str, key: bool = True) -> Html:
    """`key`: the first cell of a row names it."""
    head = "".join(f'<th scope="col"{_look(one.look)}>{safe(one.name)}</th>' for one in heads)
    body = "".join(f"<tr>{''.join(_cells(heads, row, key=key))}</tr>" for row in rows)
    return Html(
        f'<div class="scroll" role="region" tabindex="0" aria-label="{safe(label)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(heads: Sequence[Head], row: Sequence[Cell], *, key: bool) -> list[str]:
    made = []
    for place, (head, cell) in enumerate(zip(heads, row, strict=True)):
        tag = 'th scope="row"' if key and not place else "td"
        made.append(f"<{tag}{_look(head.look)}>{text_of(cell)}</{tag.partition(' ')[0]}>")
    return made


def _look(look: str) -> str:
    return f' class="{look}"' if look else ""


def folded(summary: str, body: str) -> Html:
    return Html(f"<details><summary>{safe(summary)}</summary>{body}</details>")


def command(line: str) -> Html:
    return Html(f'<div class="code command"><code>{safe(line)}</code></div>')


def code(text: str, label: str) -> Html:
    return Html(f'<pre class="code" tabindex="0" role="region" aria-label="{safe(label)}">{safe(text)}</pre>')


def note(body: Cell, tone: str = "info") -> Html:
    sign = {"bad": "problem", "warn": "watch"}.get(tone, "info")
    return Html(f'<div class="note {tone}">{icon(sign)}<div>{text_of(body)}</div></div>')


def legend(keys: Sequence[tuple[str, str]]) -> Html:
    """Names with the tones of their lines."""
    items = "".join(f'<li class="{tone}">{safe(name)}</li>' for name, tone in keys)
    return Html(f'<ul class="legend">{items}</ul>')


def toned(cell: Cell, tone: str) -> Html:
    return Html(f'<b class="tone {tone}">{text_of(cell)}</b>')


def soft(text: str) -> Html:
    return Html(f'<span class="zero">{safe(text)}</span>')


def count(value: float, shown: str, tone: str = "") -> Html:
    """Nothing is said softly, an exception with its colour."""
    if not value:
        return soft(shown)
    return toned(shown, tone) if tone else text_of(shown)


def sub(cell: Cell, below: str) -> Html:
    return Html(f'{text_of(cell)}<span class="sub">{safe(below)}</span>')
