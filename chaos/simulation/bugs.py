"""Known bugs, put into the shipped engine one at a time: a net that never catches anything proves nothing.

Each replaces named functions while it is in. Where a mend has changed the code, the faulty version of before is here.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.errors import QueueNotFound
from holdfast.stores.log import commit as committer
from holdfast.stores.log import flush_rows, intake, names, rows, tokens, topics
from holdfast.stores.log.append import Appender
from holdfast.stores.log.bucket import append as appends
from holdfast.stores.log.bucket import clock, repeat_window, requests, transaction, view
from holdfast.stores.log.bucket import listing as late
from holdfast.stores.log.bucket.faults import Doubt, Refused
from holdfast.stores.log.edit import Seen
from holdfast.stores.log.head import machine, repeat
from holdfast.stores.log.head.state import Absorb, Block
from holdfast.stores.log.store import LogStore

from . import bucket, seams

Change = tuple[Any, str, Callable[[Any], Any]]  # where, which name, from the honest one to the faulty one


class Bug(msgspec.Struct, frozen=True):
    changes: list[Change]
    policies: tuple[str, ...] = ("bucket", "folder", "slatedb")
    shows: tuple[str, ...] = ()  # the kinds of violations it must be found by; none: any that goes with the bug


# The faults that random histories found on buckets.


def _survey(honest: Any) -> Any:
    """An old list is judged by a new head: whoever holds more blocks than we knew is not asked what it forgot."""

    def survey(self: Any, view: Any, ranges_of: Any) -> Any:
        known = self._known
        while True:
            before = self.stored(known.root)
            ranges = ranges_of(known.root, before) if known.root else []
            heads = [known.root + "head"] if known.root else []
            (stored, *found), keys = view.survey([names.config_key(self.address.queue), *heads], ranges)
            if stored is None:
                raise QueueNotFound(f"there is no queue {self.address.queue!r}")
            if known.data != stored:
                root, known = known.root, self._known_from(stored)
                if root != known.root:
                    continue
            new = self._decoded(found[0], known.root, view.calendar)
            if ranges and new.held > before.held:
                keys = view.survey([], ranges_of(known.root, new))[1]
            elif ranges and new.ticket() != before.ticket():
                continue
            rules = self._rules(known.config, view)
            return Seen(known.config, rules, known.root, new, new.ticket(), self.window), keys

    return survey


def _dates_decide(honest: Any) -> Any:
    """What was written long after its birth counts as never acknowledged, and is deleted."""
    return lambda *args: "purged" if (its := honest(*args)) == "late" else its


def _no_fence(honest: Any) -> Any:
    """What was written long after its birth is absorbed, finished or not."""
    return lambda *args: "admit" if (its := honest(*args)) == "late" else its


_used: list[Any] = [None]  # the list that was last chosen from


def _marks_used(honest: Any) -> Any:
    def choose(self: Any, view: Any, listing: Any, *rest: Any, **options: Any) -> Any:
        _used[0] = listing
        return honest(self, view, listing, *rest, **options)

    return choose


def _used_list(honest: Any) -> Any:
    """A list that some claim has chosen from is not looked at again while the head has anything to give."""

    def absorbable_late(survey: Any, tx: Any, demand: int, late: Any) -> Any:
        listing = late.listing()
        if listing is not None and _used[0] is listing:
            seen, _ = survey(tx, intake.no_ranges)
            if not seen.rules.paused and machine.wanted(seen.head, [], demand)[1]:
                return seen, Absorb([], seen.ticket), listing.next_due
        return honest(survey, tx, demand, late)

    return absorbable_late


# Rules of the protocol, left out.


def _always(answer: Any) -> Callable[[Any], Any]:
    return lambda honest: lambda *_, **__: answer


def _taken_for_done(error: type[Exception]) -> Callable[[Any], Any]:
    def change(honest: Any) -> Any:
        def create(self: Any, key: str, data: Any) -> Any:
            try:
                return honest(self, key, data)
            except error:
                return None if "/inbox/" in key or "/later/" in key else _raise(error())

        return create

    return change


def _raise(error: Exception) -> Any:
    raise error


def _no_condition(honest: Any) -> Any:
    """The server replaces whatever is there; its probe it answers as it should."""

    def write(self: Any, key: str, data: bytes, mode: Any) -> Any:
        ignores = isinstance(mode, dict) and key.endswith("/head") and key in self.objects
        return honest(self, key, data, "overwrite" if ignores else mode)

    return write


def _wall_clock(honest: Any) -> Any:
    return lambda self: seams.world().time()


def _all_deletable(honest: Any) -> Any:
    return lambda held, now, seconds: list(held.beyond.graveyard)


# What the seeded stores of the other nets do wrong.


def _shows_whole_lease(honest: Any) -> Any:
    """Half of the lease, and the holder is told the whole."""

    def lease_out(held: Any, intent: Any, *rest: Any) -> Any:
        taken = honest(held, msgspec.structs.replace(intent, lease=intent.lease / 2), *rest)
        return msgspec.structs.replace(taken, expires=held.now + intent.lease)

    return lease_out


def _any_token(honest: Any) -> Any:
    """Whoever settles a held message settles it."""

    def settle(held: Any, intent: Any, rules: Any) -> Any:
        done = honest(held, intent, rules)
        for lease in list(held.leases):
            if lease.block == intent.block and lease.mask & intent.mask & ~done:
                own = msgspec.structs.replace(intent, token=lease.token, mask=intent.mask & lease.mask & ~done)
                done |= honest(held, own, rules)
        return done

    return settle


def _every(nth: int, faulty: Callable[..., Any]) -> Callable[[Any], Any]:
    """Now and then the faulty one."""

    def change(honest: Any) -> Any:
        count = itertools.count(1)

        def call(*args: Any, **options: Any) -> Any:
            return faulty(honest, *args, **options) if next(count) % nth == 0 else honest(*args, **options)

        return call

    return change


async def _says_done(honest: Any, self: Any, queue: str, settlements: Any) -> Any:
    return ["ok"] * len(settlements)


async def _twice(honest: Any, self: Any, queue: str, messages: Any) -> Any:
    await honest(self, queue, messages)
    return await honest(self, queue, messages)


def _tells_at_once(honest: Any) -> Any:
    """Acknowledged while it is being written: whoever dies meanwhile takes it along."""

    def write(self: Any, calls: Any, *, alone: bool) -> Any:
        written = honest(self, calls, alone=alone)
        if written is None or not all(call.ids for call in calls):
            return written
        written.add_done_callback(lambda done: done.cancelled() or done.exception())
        return None

    return write


def _forgets_block(honest: Any, self: Any, tx: Any, *, blocks: Any, **options: Any) -> Any:
    """A block is acknowledged and not written."""
    return honest(self, tx, blocks=blocks[1:], **options)


def _uncounted(honest: Any) -> Any:
    """An attempt counts when it fails, not when it begins."""

    def lease_out(held: Any, intent: Any, block: Any, source: Any, part: int, limit: int) -> Any:
        counted = msgspec.structs.replace(source, attempts=max(source.attempts - 1, 0)) if source.attempts else source
        return honest(held, intent, block, counted, part, limit)

    return lease_out


def _misses_one(honest: Any, address: Any, seen: Any, found: Any, wholes: Any = ()) -> Any:
    return honest(address, seen, found[1:], wholes)


def _spoils(honest: Any, some: Any) -> Any:
    return honest(msgspec.structs.replace(some, payload=[each[1:] for each in some.payload]))


def _newest_first(honest: Any) -> Any:
    return staticmethod(lambda *args, **options: _reversed(honest(*args, **options)))


def _reversed(block: Block) -> Block:
    return msgspec.structs.replace(block, order="".join(chr(255 - ord(each)) for each in block.order))


def _no_poll(honest: Any) -> Any:
    """A waiting claim wakes for a signal and for nothing else."""

    async def wait(self: Any, topic: str, timeout: float, *, since: int) -> bool:
        return await honest(self, topic, 1e9, since=since)  # type: ignore[no-any-return]

    return wait


def _repeat_is_success(honest: Any) -> Any:
    return lambda settlement, stored, token: (
        "ok" if settlement.action == "complete" else honest(settlement, stored, token)
    )


_BUCKET = ("bucket",)
BUGS: dict[str, Bug] = {
    "an old list is judged by a newer head": Bug(
        [(committer.Committer, "survey", _survey)],
        _BUCKET,
        ("absorbed twice", "came back", "completed twice"),
    ),
    "dates decide over deletion": Bug(
        [(repeat, "fate", _dates_decide), (repeat, "is_copied", _always(False))], _BUCKET, ("lost",)
    ),
    "a used list hides better blocks": Bug(
        [(repeat_window, "absorbable_late", _used_list), (late.Late, "choose", _marks_used)],
        _BUCKET,
        ("priority", "order"),
    ),
    "409 taken as taken": Bug([(requests.Wire, "create", _taken_for_done(Refused))], _BUCKET),
    "503 taken as done": Bug([(requests.Wire, "create", _taken_for_done(Doubt))], _BUCKET),
    "lost replies are failures": Bug([(transaction.Attempt, "happened", _always(False))], _BUCKET),
    "the head is read again after earlier attempts": Bug([(view.View, "has_read", _always(None))], _BUCKET),
    "If-Match ignored": Bug([(bucket.Bucket, "write", _no_condition)], _BUCKET),
    "client clock in leases": Bug([(clock.StoreClock, "__call__", _wall_clock)], _BUCKET),
    "the graveyard forgets at once": Bug([(repeat, "deletable", _all_deletable)], _BUCKET),
    "no fence against late writes": Bug([(repeat, "fate", _no_fence)], _BUCKET),
    "released too early": Bug([(machine, "_lease_out", _shows_whole_lease)]),
    "no token check": Bug([(machine, "_settle", _any_token)]),
    "settle before durable": Bug([(LogStore, "settle", _every(7, _says_done))]),
    "acknowledge before durable": Bug([(Appender, "_write", _tells_at_once)], ("folder", "slatedb"), ("lost",)),
    "repeat not recognised": Bug([(LogStore, "append", _every(5, _twice))]),
    "enqueue loses every nth": Bug(
        [(where, "_publish", _every(7, _forgets_block)) for where in (Appender, appends.Appends)]
    ),
    "attempt counted at failure": Bug([(machine, "_lease_out", _uncounted)]),
    "archive misses one": Bug([(flush_rows, "encode", _every(3, _misses_one))]),
    "dead without trace": Bug([(flush_rows, "_dead", _always([]))]),
    "payload spoiled": Bug([(rows, "encode", _every(7, _spoils))]),
    "newest first": Bug([(Block, "of", _newest_first)]),
    "no poll fallback": Bug([(topics.Topics, "wait", _no_poll)]),
    "second completion accepted": Bug([(tokens, "judged", _repeat_is_success)]),
}


class _Swap:
    """One function and its faulty twin; also where the head looks its verbs up."""

    def __init__(self, where: Any, name: str, change: Callable[[Any], Any]) -> None:
        self._where = where
        self._name = name
        self._honest = vars(where)[name]
        self._faulty = change(getattr(where, name))
        self._verbs = {kind for kind, verb in machine._VERBS.items() if verb is self._honest}

    def set(self, *, faulty: bool) -> None:
        chosen = self._faulty if faulty else self._honest
        setattr(self._where, self._name, chosen)
        for kind in self._verbs:
            machine._VERBS[kind] = chosen


_in: list[_Swap] = []


@contextlib.contextmanager
def seeded(name: str) -> Iterator[None]:
    """With this bug in the engine; "": with none."""
    _in[:] = [_Swap(*change) for change in BUGS[name].changes] if name else []
    for each in _in:
        each.set(faulty=True)
    try:
        yield
    finally:
        for each in _in:
            each.set(faulty=False)
        _in.clear()


@contextlib.contextmanager
def honest() -> Iterator[None]:
    """Without the bug, for a moment."""
    for each in _in:
        each.set(faulty=False)
    try:
        yield
    finally:
        for each in _in:
            each.set(faulty=True)
