"""Does the server keep its word? Conditions that are ignored would let two workers complete one message.

Opening a bucket tries: create twice, replace by an old tag, replace by the current one, delete and replace, and a race.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

from ....errors import StoreError, Unavailable, UnsafeStore
from .clock import ROUGH_S, StoreClock, ticks
from .faults import Absent, Denied, Doubt, Refused, Unreached, unreached
from .requests import Pause, Tag, Wire

FOLDER = "probe"
HASTE = 0.8  # of the time that opening may take, so that the reason is told, not only the deadline
_RACERS = 2  # more make some servers wait for seconds
_RACES = 4


def probe(wire: Wire, clock: StoreClock | None, until: float) -> None:
    """Raises UnsafeStore, or whatever keeps us from the bucket. What it wrote is removed; its dates set the clock."""
    key = f"{FOLDER}/{uuid4().hex}"
    try:
        first = _create(wire, key, clock, until)
        _must_refuse(wire, key, None, "creates an object that is already there (If-None-Match is ignored)", until)
        second = _replace(wire, key, first, until)
        _must_refuse(wire, key, first, "replaces an object that has changed (If-Match is ignored)", until)
        _race(wire, key, second, until)
    except Unreached as error:
        raise unreached(wire.place, error) from None
    except (Absent, Doubt, Refused, Unavailable, UnsafeStore):
        with suppress(StoreError):  # what we found out is what matters, not that we could not tidy up after it
            wire.delete([key], until)
        raise
    except StoreError as error:
        _tell_why(wire, key, until, error)
        raise
    wire.delete([key], until)


def _tell_why(wire: Wire, key: str, until: float, error: StoreError) -> None:
    """A server may refuse to write, and say only to another request that there is no bucket, or that we may read."""
    try:
        wire.delete([key], until)
    except Denied:
        pass
    if not isinstance(error, Denied):
        return
    try:
        wire.page(FOLDER, "", until)
    except StoreError:
        return
    raise StoreError(
        f"{wire.place}: it can be read but not written with this key; a queue reads, writes, lists and deletes objects"
    ) from None


def _create(wire: Wire, key: str, clock: StoreClock | None, until: float) -> Tag:
    pause = Pause(until)
    while True:
        began = ticks()
        try:
            wire.create(key, b"first")
        except Unreached:
            raise
        except (Doubt, Refused, Absent):
            if pause.over():
                raise
            pause.wait()
        ended = ticks()
        found = wire.head(key, until)
        if found is not None:
            if clock is not None:
                clock.sample(began, ended, found.made)
                if clock.doubt > ROUGH_S:  # the request was held up on its way: its date says little
                    if pause.over():
                        raise Doubt("its time could not be read")
                    wire.delete([key], until)
                    continue
            return found.tag


def _replace(wire: Wire, key: str, tag: Tag, until: float) -> Tag:
    """By the current tag; a refusal may be a repeat of our own success."""
    pause = Pause(until)
    while True:
        try:
            return wire.swap(key, b"second", tag)
        except (Doubt, Refused):
            found = wire.get(key, until)
            if found is not None and found.data == b"second":
                return found.tag
            if pause.over():
                raise _unsafe(wire, "refuses to replace an object by its current tag") from None
            pause.wait()


def _must_refuse(wire: Wire, key: str, tag: Tag | None, what: str, until: float) -> None:
    pause = Pause(until)
    while True:
        try:
            wire.swap(key, b"wrong", tag)
        except Refused:
            break
        except Doubt:
            if pause.over():
                raise
            pause.wait()
        else:
            raise _unsafe(wire, what)
    found = wire.get(key, until)
    if found is None or found.data == b"wrong":
        raise _unsafe(wire, what)


def _race(wire: Wire, key: str, tag: Tag, until: float) -> None:
    """Of many who replace the same version at once, one may win; what is stored is the winner's."""

    def run(name: bytes) -> bytes | None:
        try:
            wire.swap(key, name, tag)
        except (Refused, Doubt):
            return None
        return name

    with ThreadPoolExecutor(_RACERS, thread_name_prefix="holdfast-probe") as pool:
        for turn in range(_RACES):
            names = [b"%d-%d" % (turn, place) for place in range(_RACERS)]
            winners = [name for name in pool.map(run, names) if name is not None]
            found = wire.get(key, until)
            if len(winners) > 1 or found is None or (winners and found.data != winners[0]):
                raise _unsafe(wire, "lets several writers replace one version (its check is not atomic)")
            tag = found.tag


def _unsafe(wire: Wire, what: str) -> UnsafeStore:
    return UnsafeStore(
        f"{wire.place}: this server {what}. A queue needs conditional writes: Amazon S3, Google Cloud Storage, Azure, "
        "or a compatible server that honours If-Match and If-None-Match"
    )
