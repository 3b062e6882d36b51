"""Text of others, such as names and errors, made safe to show: what would steer a terminal or forge a line of a log."""

from __future__ import annotations

import re

# Control characters, line and paragraph separators, marks that reorder what is shown, halves of characters.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"}


def one_line(text: str) -> str:
    """The text with such characters written out, as Python writes them in a literal."""
    return _STEERING.sub(_written_out, text) if _STEERING.search(text) else text


def many_lines(text: str) -> str:
    """The same, but lines stay lines: for text that has some of its own, such as a traceback."""
    return "\n".join(map(one_line, text.split("\n"))) if _STEERING.search(text) else text


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
