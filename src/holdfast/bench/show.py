"""Tables for people, JSON for programs, a progress bar on stderr when somebody is looking. Rich only when used."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from .measure import PROGRESS_S

_FILE_CHARS = 1000  # of a line that no terminal shows: wider than any table, whose cells would be cut


def as_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def as_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout; the first column is text, the others are numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else _FILE_CHARS).print(table)


class Bar:
    """Where the work stands: `to` an absolute number, or `add` to it; `note` says what is going on."""

    def __init__(self, draw: Callable[[int, str], None] | None, total: int) -> None:
        self._draw = draw
        self._done = 0
        self._note = ""
        self._next = 0.0
        self.total = total

    def to(self, done: int) -> None:
        self._done = done
        self._refresh()

    def add(self, units: int) -> None:
        self.to(self._done + units)

    def above(self, base: int) -> Callable[[int], None]:
        """For a part of the work that counts from zero."""
        return lambda done: self.to(base + done)

    def note(self, text: str) -> None:
        self._note = text
        self._refresh(now=True)

    def _refresh(self, *, now: bool = False) -> None:
        if self._draw is not None and (now or time.monotonic() >= self._next):
            self._next = time.monotonic() + PROGRESS_S
            self._draw(self._done, self._note)


@contextmanager
def progress(label: str, total: int, *, quiet: bool = False) -> Iterator[Bar]:
    """A bar on stderr, drawn only when it is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield Bar(None, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as shown:
        task = shown.add_task(label, total=total)

        def draw(done: int, note: str) -> None:
            shown.update(task, completed=done, description=f"{label} {note}".rstrip(), refresh=True)

        bar = Bar(draw, total)
        yield bar
        draw(bar.total, "")


def rate(value: float) -> str:
    """123456.7 → 123,457; small ones keep a digit."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.3f}"
