"""CSV as RFC 4180 has it: lines become records, records become JSON objects. Pure.

Spark's own reader takes what it finds: a doubled quote, a stray one, a line with too many fields, a number with zeros
before it all come out as something, and so do the lines after them. Here a line that is no CSV is one bad line.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ...errors import ConfigError

Kind: TypeAlias = Literal["text", "number", "boolean"]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?").fullmatch
_SURE_INTEGER = 18  # digits that fit 64 bits
_encode = msgspec.json.Encoder().encode
NOT_CSV = "it is not CSV: a quote or a line break is where none can be"


class Dialect(msgspec.Struct, frozen=True):
    """How a file is written."""

    sep: str = ","
    quote: str = '"'
    escape: str | None = None  # instead of a doubled quote
    header: bool = True
    encoding: str = "utf-8"
    null: str = ""  # an unquoted field of this text is null
    comment: str | None = None

    def check(self) -> None:
        """ConfigError for what cannot be read line by line."""
        for name in ("sep", "quote", "escape", "comment"):
            text = getattr(self, name)
            if text is not None and (len(text) != 1 or not text.isascii() or text in "\r\n"):
                raise ConfigError(f"csv: {name} is one ASCII character, not {text!r}")
        try:
            ascii_like = codecs.lookup(self.encoding) and "\n,".encode(self.encoding) == b"\n,"
        except LookupError:
            raise ConfigError(f"csv: there is no encoding {self.encoding!r}") from None
        if not ascii_like:
            raise ConfigError(f"csv: lines of {self.encoding} cannot be told apart; convert the file to UTF-8 first")


class Record(NamedTuple):
    """One record: its bytes, and its fields or the reason why it has none."""

    raw: bytes
    fields: list[str | None]
    reason: str | None = None


class Parser:
    """From lines to records of one dialect."""

    def __init__(self, dialect: Dialect, most: int) -> None:
        sep, quote = re.escape(dialect.sep), re.escape(dialect.quote)
        escape = None if dialect.escape in (None, dialect.quote) else re.escape(dialect.escape or "")
        inside = rf"[^{quote}]|{quote}{quote}" if escape is None else rf"[^{quote}{escape}]|{escape}."
        self._field = re.compile(
            rf"(?:{quote}((?:{inside})*+){quote}|((?!{quote})[^{sep}\r\n]*+))({sep}|\Z)", re.DOTALL
        ).match
        self._escaped = re.compile(f"{quote}({quote})" if escape is None else f"{escape}(.)", re.DOTALL).sub
        self._left_out = None if escape is None else re.compile(f"{escape}.".encode(), re.DOTALL).sub
        self._quote = dialect.quote.encode()
        self._comment = None if dialect.comment is None else dialect.comment.encode()
        self._encoding, self._null = dialect.encoding, dialect.null
        self._most = most  # a longer record can be no message

    def records(self, lines: Iterable[bytes]) -> Iterator[Record]:
        """A record that spans lines and turns out to be none is one bad line: the next ones are looked at again."""
        coming, again = iter(lines), deque[bytes]()
        while (first := again.popleft() if again else next(coming, None)) is not None:
            if first in (b"", b"\r") or (self._comment and first.startswith(self._comment)):
                continue
            taken, size, is_open = [first], len(first), self._is_odd(first)
            while is_open and size <= self._most:
                line = again.popleft() if again else next(coming, None)
                if line is None:
                    break
                taken.append(line)
                size += len(line)
                is_open ^= self._is_odd(line)
            record = self._parsed(b"\n".join(taken))
            if record.reason is not None and len(taken) > 1:
                again.extendleft(reversed(taken[1:]))
                record = Record(first.removesuffix(b"\r"), [], NOT_CSV)
            yield record

    def _is_odd(self, line: bytes) -> bool:
        plain = line if self._left_out is None else self._left_out(b"", line)
        return plain.count(self._quote) % 2 == 1

    def _parsed(self, raw: bytes) -> Record:
        raw = raw.removesuffix(b"\r")
        try:
            text = raw.decode(self._encoding)
        except UnicodeDecodeError:
            return Record(raw, [], f"it is not {self._encoding}")
        fields: list[str | None] = []
        place, end = 0, " "
        while end:
            found = self._field(text, place)
            if found is None:
                return Record(raw, [], NOT_CSV)
            quoted, plain, end = found.groups()
            if quoted is not None:
                fields.append(self._escaped(r"\1", quoted))
            else:
                fields.append(None if plain == self._null else plain)
            place = found.end()
        return Record(raw, fields)


def kind_of(text: str) -> Kind:
    """What text is as JSON when nothing of it may be lost: `00123`, `1e5` and twenty digits are text."""
    if text in ("true", "false"):
        return "boolean"
    found = _NUMBER(text)
    if found is None or text == "-0":
        return "text"
    digits = len(text) - text.startswith("-") - (found[1] is not None)
    return "number" if digits <= (_SURE_INTEGER if found[1] is None else sys.float_info.dig) else "text"


def narrowed(kinds: list[Kind | None], fields: Sequence[str | None]) -> None:
    """What columns can still be after one more record; None: nothing but nulls so far."""
    for place, text in enumerate(fields):
        if text is not None and kinds[place] != "text":
            kind = kind_of(text)
            kinds[place] = kind if kinds[place] in (None, kind) else "text"


class Objects:
    """Records as JSON objects: text as text, numbers and booleans exactly as they are written."""

    def __init__(self, names: Sequence[str], kinds: Sequence[Kind]) -> None:
        self._names = [_encode(name) + b":" for name in names]
        self._kinds = list(kinds)

    def encode(self, fields: Sequence[str | None]) -> bytes | None:
        """None: a field is not of its column's kind."""
        parts = []
        for name, kind, text in zip(self._names, self._kinds, fields, strict=True):
            if text is None:
                parts.append(name + b"null")
            elif kind == "text":
                parts.append(name + _encode(text))
            elif kind_of(text) == kind:
                parts.append(name + text.encode())
            else:
                return None
        return b"{" + b",".join(parts) + b"}"


def columns_of(header: Sequence[str | None]) -> list[str]:
    """The names that a header gives; ConfigError when one is there twice."""
    names = [text or f"_c{place}" for place, text in enumerate(header)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"the header names {', '.join(map(repr, twice))} more than once: give each column a name of its own"
        )
    return names
