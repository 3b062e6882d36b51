"""Text of others, such as names and errors, made safe to show: what would steer a terminal or forge a line of a log."""

from __future__ import annotations

import logging
import re
from typing import Any

# Control characters, line and paragraph separators, marks that reorder what is shown, halves of characters.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"}


def one_line(text: str) -> str:
    """The text with such characters written out, as Python writes them in a literal."""
    return _STEERING.sub(_written_out, text) if _STEERING.search(text) else text


def many_lines(text: str) -> str:
    """The same, but lines stay lines: for text that has some of its own, such as a traceback."""
    return "\n".join(map(one_line, text.split("\n"))) if _STEERING.search(text) else text


def in_json(text: str) -> str:
    """A JSON document that means the same; it has no control characters but the lines it was laid out in."""
    return _STEERING.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


class _Escaping(logging.Filter):
    """Of a logger, so that it applies to every handler of its records."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_safe(each) for each in record.args)
        if record.exc_info and record.exc_info[1] is not None and record.exc_text is None:
            # Set in: a line break in an error's text must not begin a line that looks like a record of its own.
            lines = logging.Formatter().formatException(record.exc_info).splitlines()
            record.exc_text = "\n".join("  " + one_line(line) for line in lines)
        return True


def _safe(value: Any) -> Any:
    return one_line(str(value)) if isinstance(value, str | BaseException) else value


def logger_named(name: str) -> logging.Logger:
    """The logger of this name, which writes nobody's text as it came."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, _Escaping) for each in logger.filters):
        logger.addFilter(_Escaping())
    return logger
