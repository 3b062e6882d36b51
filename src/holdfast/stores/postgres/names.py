"""Names in the database: which tables a queue has, and how identifiers are written."""

from __future__ import annotations

import hashlib
import re

from ..base import DEAD

_SAFE = re.compile(r"[a-z0-9_]{1,40}")
_OTHERS = re.compile(r"[^a-z0-9_]")
IDENTIFIER_BYTES = 63  # the server cuts longer names, silently


def slug(queue: str) -> str:
    """The part of a queue's table names that is its own: the name itself, or its beginning and a hash."""
    name = queue.removesuffix(DEAD)
    if _SAFE.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    # Longer than any name that stands for itself, so that the two kinds never meet.
    return f"{_OTHERS.sub('_', name.lower())[:32]:_<32}_{digest}"


def quoted(identifier: str) -> str:
    """An identifier as SQL writes it. The one place where a name becomes part of a statement."""
    if not identifier or "\0" in identifier or len(identifier.encode()) > IDENTIFIER_BYTES:
        raise ValueError(f"{identifier!r} cannot be an identifier: 1 to {IDENTIFIER_BYTES} bytes, no NUL")
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Text as SQL writes it, for statements that take no parameters."""
    if "\0" in text or "\\" in text:
        raise ValueError("no NUL and no backslash in a literal")
    return "'" + text.replace("'", "''") + "'"


def tables(schema: str, queue: str) -> dict[str, str]:
    """What the statements of one queue call its tables: q, w, d, a."""
    own = slug(queue)
    return {kind: f"{quoted(schema)}.{quoted(f'{kind}_{own}')}" for kind in "qwda"}
