"""Messages by what is in them. No store has an index for that: a request looks for a while and says how far it came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ..errors import ConfigError
from ..stores.base import PAGE_ROWS, Store
from ..stores.records import JSON, Stored, View
from .bodies import masked

LOOKED_AT = 10_000  # messages of one request: what somebody who waits for a page can wait for
LOOKING_S = 1.0  # and for no longer


class Wanted(msgspec.Struct, frozen=True):
    """What a message must have, all of it. `since` and `until`: when it ended, or was enqueued if it has not."""

    text: str = ""  # somewhere in its payload or error, in any case
    headers: tuple[tuple[str, str], ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.text or self.headers or self.since or self.until)

    @property
    def of_content(self) -> bool:
        """Whether it asks for something that not everybody may see."""
        return bool(self.text or self.headers)


class Found(msgspec.Struct, frozen=True):
    """What was found, in id order; `next` is where to go on, None: this was all."""

    messages: list[Stored]
    next: str | None
    scanned: int


def instant(name: str, text: str) -> datetime | None:
    """As ISO 8601 writes it; without a zone it is UTC. None for nothing."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{name}: an instant such as 2026-11-18T09:30:00Z, not {text!r}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def is_wanted(one: Stored, wanted: Wanted, hidden: Sequence[str] = ()) -> bool:
    """Whether it fits. What is hidden is not found either."""
    at = one.finished_at if one.finished_at is not None else one.enqueued_at
    if wanted.since is not None and at < wanted.since.timestamp():
        return False
    if wanted.until is not None and at > wanted.until.timestamp():
        return False
    kept = one.headers or {}
    if any(name in hidden or kept.get(name) != value for name, value in wanted.headers):
        return False
    text = wanted.text.casefold()
    return not text or text in (one.error or "").casefold() or text in _readable(one, hidden).casefold()


def _readable(one: Stored, hidden: Sequence[str]) -> str:
    """The payload as a page shows it: without hidden fields, and letters as themselves."""
    if one.content_type == JSON and (hidden or b"\\u" in one.payload):
        try:
            shown = masked(msgspec.json.decode(one.payload), hidden)
            return msgspec.json.encode(shown).decode(errors="replace")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    return one.payload.decode(errors="replace")


async def look(
    store: Store,
    queue: str,
    view: View,
    wanted: Wanted,
    *,
    after: str | None = None,
    limit: int = LOOKED_AT,
    hidden: Sequence[str] = (),
) -> Found:
    """Up to `limit` that fit behind `after`, among as many as one request looks at."""
    end = time.monotonic() + LOOKING_S if wanted else float("inf")  # a plain page is a whole one
    found: list[Stored] = []
    scanned = 0
    rows = PAGE_ROWS if wanted else min(limit, PAGE_ROWS)
    while scanned < LOOKED_AT:
        page = await store.scan(queue, view, after=after, limit=rows)
        fitting, seen = await asyncio.to_thread(_fitting, page, wanted, hidden, limit - len(found), end)
        found += fitting
        scanned += seen
        if seen == len(page) < rows:
            return Found(found, None, scanned)
        after = page[seen - 1].id
        if len(found) >= limit or time.monotonic() > end:
            break
    return Found(found, after, scanned)


def _fitting(
    page: Sequence[Stored], wanted: Wanted, hidden: Sequence[str], limit: int, end: float
) -> tuple[list[Stored], int]:
    """Those of a page that fit, and how many of it were looked at; one at least."""
    found: list[Stored] = []
    for seen, one in enumerate(page, 1):
        if is_wanted(one, wanted, hidden):
            found.append(one)
        if len(found) >= limit or time.monotonic() > end:
            return found, seen
    return found, len(page)
