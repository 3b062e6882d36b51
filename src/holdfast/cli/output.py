"""What a command shows: tables and sentences for people, one JSON document for programs. Rich loads when used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import typer

from ..escaping import in_json, many_lines, one_line

if TYPE_CHECKING:
    from rich.console import Console

CELL_CHARS = 60  # of a table for people; longer text is cut
TABLE_ROWS = 200  # beyond them a table is written plainly: laid out for a terminal, 10,000 rows take 5 s
UNLIMITED_CHARS = 100_000  # of a line: what is piped to a file or a program must not be cut


class Output:
    """Where all commands print. `json`: programs read it, so people's lines stay away; `quiet`: so do sentences."""

    def __init__(self, *, json: bool, quiet: bool = False, utc: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.utc = utc

    def table(
        self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, empty: str, whole: bool = False
    ) -> None:
        """Rows as a table of these columns, or as an array with everything. `whole`: nothing is cut."""
        if self.json:
            return self.document(rows)
        if not rows:
            return typer.echo(empty)
        cut = str if whole else _cut
        cells = [[cut(shown(row[column], utc=self.utc)) for column in columns] for row in rows]
        numeric = [all(isinstance(row[column], int | float | None) for row in rows) for column in columns]
        titles = [column.replace("_", " ") for column in columns]
        if len(rows) > TABLE_ROWS or not sys.stdout.isatty():
            # As rich writes, to stdout as it is set: typer.echo has its own view of what that can show.
            return print("\n".join(_aligned([titles, *cells], numeric)))  # noqa: T201 - the command line prints
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title, is_number in zip(titles, numeric, strict=True):
            justify: Literal["right", "left"] = "right" if is_number else "left"
            table.add_column(title, justify=justify, no_wrap=is_number, overflow="fold")
        for line in cells:
            table.add_row(*map(Text, line))
        _console().print(table)

    def fields(self, row: Mapping[str, Any]) -> None:
        """One thing: a line per field, or an object. Nothing is cut."""
        if self.json:
            return self.document(row)
        width = max(map(len, row), default=0)
        for name, value in row.items():
            typer.echo(f"{name.replace('_', ' '):{width}}  {shown(value, utc=self.utc)}".rstrip())

    def done(self, sentence: str, **facts: Any) -> None:
        """What was done: a sentence, or an object."""
        if self.json:
            return self.document(facts)
        if not self.quiet:
            typer.echo(many_lines(sentence))

    def ids(self, ids: Sequence[str], sentence: str, **facts: Any) -> None:
        """What was made: the id of one, a sentence of several; all ids, one on each line, when quiet."""
        if self.json:
            return self.document({**facts, "ids": ids})
        typer.echo("\n".join(ids) if self.quiet or len(ids) == 1 else many_lines(sentence))

    def note(self, sentence: str) -> None:
        """Something a person may want to know, in addition to the answer."""
        if not self.quiet:
            typer.echo(one_line(sentence), err=True)

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        import msgspec

        typer.echo(in_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))

    @contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A bar on stderr while a person watches; call what it gives with the number of things done."""
        if self.json or self.quiet or not sys.stderr.isatty():
            yield lambda done: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=_console(stderr=True), transient=True) as bars:
            task = bars.add_task(label, total=total)
            yield lambda done: bars.advance(task, done)


def _aligned(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> Iterator[str]:
    """Lines of cells in columns; nothing is folded, as for a file or a program."""
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        parts = zip(line, widths, numeric, strict=True)
        yield "  ".join(_padded(cell, width, right=is_number) for cell, width, is_number in parts).rstrip()


def _padded(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if right else cell + space


def _width(cell: str) -> int:
    """Columns of a terminal."""
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def moment(value: datetime, *, utc: bool) -> str:
    """An instant in the local zone, with its distance from UTC."""
    there = value.astimezone(UTC if utc else None)
    offset = there.strftime("%z")
    return there.strftime("%Y-%m-%d %H:%M:%S") + ("Z" if offset == "+0000" else f"{offset[:3]}:{offset[3:5]}")


def shown(value: Any, *, utc: bool = True) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, datetime):
        return moment(value, utc=utc)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return _compact(value)


def _compact(value: Any) -> str:
    import msgspec

    if isinstance(value, bytes):
        return repr(value)
    return one_line(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= CELL_CHARS and line == text else line[: CELL_CHARS - 1] + "…"


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = UNLIMITED_CHARS
    return console
