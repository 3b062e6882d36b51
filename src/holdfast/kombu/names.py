"""Queues of kombu have any name, ours letters, digits, `_`, `.` and `-`: what does not fit gets a name of its own."""

from __future__ import annotations

import hashlib
import re

_FITS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_OURS = "q--"  # before a name that was made here
_SLUG_CHARS = 60  # of the original, for who reads it


def queue_name(name: str) -> str:
    """The name of a queue in the store."""
    if _FITS.fullmatch(name) and not name.startswith(_OURS):
        return name
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:_SLUG_CHARS]
    return f"{_OURS}{slug}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"
