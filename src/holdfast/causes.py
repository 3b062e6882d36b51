"""Why messages failed: errors that differ only in particulars have one fingerprint. Pure."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import NamedTuple

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.I)
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{16,}\b", re.I)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_FRAME = re.compile(r'^ *File "([^"]+)", line \d+, in (.+)$', re.M)
_KIND = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit|Interrupt|[A-Z]\w*)): ")
_REASON_CHARS = 200  # a reason is a heading


class Cause(NamedTuple):
    """What an error text says: the kind of exception, its first line without particulars, and both as one short key."""

    kind: str
    reason: str
    fingerprint: str


@functools.lru_cache(maxsize=10_000)
def cause(error: str) -> Cause:
    """Errors that differ only in numbers, ids, addresses and quoted words have the same fingerprint."""
    headline = error.partition("\n")[0].strip() or "no reason"
    found = _KIND.match(headline)
    kind = found[1] if found else ""
    reason = headline
    for pattern, sign in ((_QUOTED, "'…'"), (_UUID, "[id]"), (_ADDRESS, "[hex]"), (_NUMBER, "#")):
        reason = pattern.sub(sign, reason)
    reason = reason[:_REASON_CHARS]
    frames = _FRAME.findall(error)
    where = f"{frames[-1][0].rpartition('/')[2]}:{frames[-1][1]}" if frames else ""
    key = hashlib.blake2b(f"{reason}\n{where}".encode(), digest_size=6).hexdigest()
    return Cause(kind, reason, key)
