"""What `message send` reads: one JSON value, a file, or JSON lines in batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from . import values

LINE_FILES = {".jsonl", ".ndjson"}


class Lines:
    """A source of messages. `many`: it may hold more than one; `total`: how many, when that is known."""

    def __init__(self, texts: Iterable[str | bytes], *, many: bool, total: int | None = None) -> None:
        self._texts = texts
        self.many = many
        self.total = total
        self.sent = 0  # kept by the sender, so that an error can say what was sent before it

    @classmethod
    def of(cls, argument: str) -> Lines:
        """The source that JSON, @file or - means."""
        if argument == "-":
            return cls(sys.stdin.buffer, many=True)
        if not argument.startswith("@"):
            return cls([argument], many=False, total=1)
        path = Path(argument[1:])
        if not path.is_file():
            raise typer.BadParameter(f"there is no file {path}")
        if path.suffix in LINE_FILES:
            return cls(_file_lines(path), many=True)
        return cls([path.read_bytes()], many=False, total=1)

    def batches(self, size: int) -> Iterator[list[Any]]:
        """The values, parsed, in lists of up to `size`."""
        numbered = ((number, text) for number, text in enumerate(self._texts, 1) if text.strip())
        while chunk := list(islice(numbered, size)):
            yield [self._value(number, text) for number, text in chunk]

    def _value(self, number: int, text: str | bytes) -> Any:
        if not self.many:
            return values.json_value(text)
        try:
            return values.json_value(text, what=f"line {number}")
        except typer.BadParameter as error:
            before = f"; {self.sent:,} messages before it were sent" if self.sent else "; nothing was sent"
            raise typer.BadParameter(error.message + before) from error


def _file_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file
