"""A bucket knows whether it was copied: an object that says when it was made, where, and since when it is a copy.

A copy, a restored version or a rewrite in place gives this object a later date; replication keeps dates, but not the
place. Whoever finds that writes a new identity whose epoch is now: what was born and written before is no late write.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from zlib import crc32

import msgspec

from ....errors import Damaged
from ... import formats
from .. import damage
from ..names import CONFIGS, is_ours
from .faults import Doubt, Refused, unanswered
from .requests import Got, Pause, Wire

KEY = "~identity"  # behind every queue's keys: what rewrites a bucket in order of its keys comes to it last
COPIED_AFTER_SECONDS = 15.0  # between `made_at` and the object's date; a slow write of our own is not a copy
REWRITE_SECONDS = 60.0  # after which whoever is at work takes a rewrite in place as finished: tools write many at once


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored; `epoch` 0: never copied. `lineage` counts the copies."""

    format: int  # of everything in the bucket
    store_id: str
    place: str  # bucket and prefix
    made_at: float
    epoch: float = 0.0
    lineage: int = 0
    born: int = formats.FIRST  # the format it was made with, as far as that was noted
    sum: int = 0  # a CRC-32 of all that stands before it; 0: of an earlier version


class IdentityKeeper:
    """Reads the identity of one space; blocking, from any thread."""

    def __init__(self, wire: Wire, clock: Callable[[], float], *, has_dates: Callable[[], bool]) -> None:
        self._wire = wire
        self._clock = clock
        self._has_dates = has_dates  # whether dates of the server can be compared with the clock
        self.current: Identity | None = None

    @property
    def epoch(self) -> float:
        return self.current.epoch if self.current is not None else 0.0

    def read(self, until: float, *, opening: bool = False) -> None:
        """Learn the identity; make one where there is none, and a new one where it was copied.

        Objects that a rewrite in place reaches after the epoch look late, so who is at work waits until it is over.
        Whoever opens the bucket does not wait.
        """

        def change(got: Got | None, found: Identity | None) -> Identity | None:
            if got is not None and found is not None and not self._is_copied(got, found, opening=opening):
                return None
            return self._next(found, until)

        self._bring_up_to(change, until)

    def raise_format(self, until: float) -> None:
        """To the newest."""

        def change(got: Got | None, found: Identity | None) -> Identity | None:
            if found is not None and found.format >= formats.LOG:
                return None
            copied = got is None or found is None or self._is_copied(got, found, opening=True)
            new = self._next(found, until) if copied or found is None else found
            # Dated as the object is, or it would look copied.
            return msgspec.structs.replace(new, format=formats.LOG, made_at=self._clock())

        self._bring_up_to(change, until)

    def _bring_up_to(self, change: Callable[[Got | None, Identity | None], Identity | None], until: float) -> None:
        """Read the object, and replace it where there is another to be written."""
        pause = Pause(until, self._wire.ending)
        while True:
            got = self._wire.get(KEY, until)
            found = damage.read(KEY, partial(_decoded, place=self._wire.place), got.data) if got is not None else None
            new = change(got, found)
            if new is None:
                self._learn(found)
                return
            try:
                self._wire.swap(KEY, _encoded(new), got.tag if got is not None else None)
            except (Refused, Doubt) as error:  # somebody else was faster, or nobody knows: look again
                if pause.over():
                    raise unanswered(self._wire.place, self._wire.timeout, error) from None
                pause.wait()
            else:
                self._learn(new)
                return

    def _learn(self, identity: Identity | None) -> None:
        self.current = identity
        if identity is not None:
            self._wire.sums.set(identity.format, identity.born)

    def _is_copied(self, got: Got, found: Identity, *, opening: bool) -> bool:
        if found.place != self._wire.place:
            return True
        if not self._has_dates() or got.made - found.made_at <= COPIED_AFTER_SECONDS:
            return False
        return opening or self._clock() - got.made > REWRITE_SECONDS

    def _next(self, found: Identity | None, until: float) -> Identity:
        now, place = self._clock(), self._wire.place
        if found is not None:
            return msgspec.structs.replace(found, place=place, made_at=now, epoch=now, lineage=found.lineage + 1)
        # Queues without an identity: of an earlier version, or it was lost, or they were copied without it.
        configs = [each.key for each in self._wire.page(CONFIGS.rstrip("/"), "", until)]
        store_id = self._store_of(configs, until)
        if not configs:
            self._refuse_remains(until)
        format = formats.LOG if store_id or not configs else formats.FIRST
        return Identity(
            format=format,
            born=formats.FIRST if configs else format,
            store_id=store_id or secrets.token_hex(8),
            place=place,
            made_at=now,
            epoch=now if configs else 0.0,
        )

    def _store_of(self, configs: list[str], until: float) -> str:
        """The id that the first queue which has one says; empty: they are of an earlier version."""
        for key in configs:
            with suppress(Damaged, msgspec.DecodeError):  # whoever uses the queue is told
                got = self._wire.get(key, until)
                if got is not None and (store_id := msgspec.json.decode(got.data, type=_Named).store):
                    damage.logger.error("%s had lost its identity: %s was made anew", self._wire.place, KEY)
                    return store_id
        return ""

    def _refuse_remains(self, until: float) -> None:
        """Messages of queues that are not there need their options: without them this is no new store."""
        left = next((each.key for each in self._wire.page("", "", until) if is_ours(each.key)), None)
        if left is not None:
            raise Damaged(
                f"{self._wire.place} has objects of queues ({left}) but no options of any, and no identity: restore it "
                "from a backup, or make the store under another prefix",
                key=KEY,
            )


class _Named(msgspec.Struct):
    """What the options of a queue say of the store."""

    store: str = ""


def _decoded(data: bytes, place: str) -> Identity:
    identity = msgspec.json.decode(data, type=Identity)
    formats.checked(identity.format, formats.LOG, place, oldest=formats.FIRST)
    if identity.sum and identity.sum != _sum(data):
        raise ValueError("its bytes do not match its sum")
    return identity


def _encoded(identity: Identity) -> bytes:
    plain = msgspec.json.encode(msgspec.structs.replace(identity, sum=0))
    return msgspec.json.encode(msgspec.structs.replace(identity, sum=_sum(plain)))


def _sum(data: bytes) -> int:
    """Of all that stands before the sum itself, whatever a later version adds there."""
    return crc32(data[: data.rindex(b'"sum":')]) or 1
