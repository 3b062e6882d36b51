"""How the writes of a step become durable: what is new first, then the one replacement that decides, then deletions.

The replacement is the commit. When it is refused the step runs again on what is there now. When its answer is lost,
a later version of the object tells whether it happened; until then the attempt stays open, since a request that was
given up may still arrive.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from ....errors import Unavailable
from .. import bundles, names
from ..space import Buffer, Stale, Transaction, Unclear
from .clock import ticks
from .faults import Doubt, Refused, unanswered
from .head_cache import Shelf, is_kept
from .requests import Ending, Got, Listed, Pause, Tag
from .view import View, Write

T = TypeVar("T")
WINDOW = 15.0  # seconds in which a producer may repeat a write: R of the protocol
_SURE = 5.0  # an object written so long before the end of the window is within it, whatever our clock is off
_PARALLEL = 8
_TRIP_MAX_S = 0.3  # beyond, the request was held up


class Attempt(msgspec.Struct, frozen=True):
    """A replacement without a clear answer."""

    view: View
    key: str
    write: Write
    condition: Tag | None
    result: Any
    took_s: float = 0.0
    refused: bool = False  # that is, answered: somebody was faster, or this is the answer to a repeat of our success

    def happened(self, now: Got | None) -> bool:
        data = now.data if now is not None else None
        return data == self.write.data or (self.write.proof is not None and self.write.proof(data))

    def is_over(self, now: Got | None) -> bool:
        """The object has left the version it waits for, so it can never happen any more."""
        return (now.tag.e_tag if now else None) != (self.condition.e_tag if self.condition else None)


def _final(error: Exception, view: View, missing: set[str]) -> Exception | None:
    """The error of a step that would fail again; None: it should run again."""
    if view.assumed:
        return None  # it may have failed on what we only remembered
    if not isinstance(error, Stale):
        return error
    if str(error) not in missing:
        missing.add(str(error))  # somebody has finished it since we looked
        return None
    return Unavailable(f"the bucket changes while it is looked at ({error}): try again")


class _Pauses(Pause):
    """Those who were refused come back at once, but apart: within the time of another replacement."""

    def __init__(self, until: float, ending: Ending) -> None:
        super().__init__(until, ending)
        self.refusals = 0

    def after(self, attempt: Attempt) -> None:
        if not attempt.refused:
            self.wait()
            return
        self.refusals += 1
        time.sleep(random.random() * min(attempt.took_s, _TRIP_MAX_S))


class Commits:
    """Runs steps for one space."""

    def __init__(self, shelf: Shelf, clock: Callable[[], float]) -> None:
        self._shelf = shelf
        self._clock = clock
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="holdfast-put")

    def close(self, *, wait: bool = True) -> None:
        self._pool.shutdown(wait=wait)
        self._shelf.pool.shutdown(wait=wait)

    def run(self, step: Callable[[Transaction], T], until: float) -> tuple[T, View]:
        """The step's answer once its writes are durable, and the run that made them."""
        open_attempts: list[Attempt] = []
        missing: set[str] = set()
        fresh = False
        view: View | None = None
        pause = _Pauses(until, self._shelf.wire.ending)
        began = time.monotonic()
        while True:
            read = open_attempts[0].key if open_attempts else None
            settled = self._settle(open_attempts, until)
            if settled is not None:
                return settled.result, settled.view
            view = View(self._shelf, self._clock, until, fresh=fresh, snapshot=False, before=view)
            view.refusals = pause.refusals
            if read is not None:
                view.has_read(read)
            try:
                result = step(view)
            except Exception as error:  # noqa: BLE001  of the step: raised unless it should run again
                fresh = True
                final = _final(error, view, missing)
                if final is not None:
                    raise final  # noqa: B904  the error itself, or one of ours about it
                continue
            if not view.writes and view.assumed:
                fresh = True
                continue
            if self._carry_out(view, result, open_attempts, until):
                return result, view
            fresh = True
            pause.after(open_attempts[-1])
            if pause.over():
                raise self._given_up(open_attempts, time.monotonic() - began)

    def _carry_out(self, view: View, result: Any, open_attempts: list[Attempt], until: float) -> bool:
        """False: the replacement was refused, or nobody knows."""
        self._create_all(view.creates, until)
        for key, write in view.puts.items():
            if not self._replace(Attempt(view, key, write, view.tags[key], result), open_attempts):
                return False
        self._delete(view, until)
        return True

    def _replace(self, attempt: Attempt, open_attempts: list[Attempt]) -> bool:
        began = time.monotonic(), ticks()
        try:
            tag = self._shelf.wire.swap(attempt.key, attempt.write.data, attempt.condition)
        except (Refused, Doubt) as error:
            # Refused too: the refusal may answer a repeat of our own success.
            took_s, refused = time.monotonic() - began[0], isinstance(error, Refused)
            open_attempts.append(msgspec.structs.replace(attempt, took_s=took_s, refused=refused))
            return False
        if is_kept(attempt.key):
            self._shelf.wrote(attempt.key, attempt.write.data, tag, began)
        return True

    def _settle(self, open_attempts: list[Attempt], until: float) -> Attempt | None:
        """The attempt that turns out to have happened."""
        if not open_attempts:
            return None
        now = self._shelf.refresh(open_attempts[0].key, until)
        for attempt in reversed(open_attempts):
            if attempt.happened(now):
                self._delete(attempt.view, until)
                return attempt
        open_attempts[:] = [attempt for attempt in open_attempts if not attempt.is_over(now)]
        return None

    def _given_up(self, open_attempts: list[Attempt], seconds: float) -> Exception:
        if open_attempts:
            place = self._shelf.wire.place
            return Unclear(f"{place} gave no clear answer within {seconds:g} s; whether it took effect is unknown")
        return unanswered(self._shelf.wire.place, seconds, None)

    def _delete(self, view: View, until: float) -> None:
        if view.deletes:
            for key in view.deletes:
                self._shelf.forget(key)
            self._shelf.wire.delete(list(view.deletes), until)

    def _create_all(self, creates: dict[str, Buffer], until: float) -> None:
        last = [key for key in creates if bundles.is_bundle(key)]
        first = [key for key in creates if not bundles.is_bundle(key)]
        for keys in (first, last):  # what a bundle names is there before it
            if len(keys) == 1:
                self.create(keys[0], creates[keys[0]], until)
            elif keys:
                list(self._pool.map(lambda key: self.create(key, creates[key], until), keys))

    def create(self, key: str, data: Buffer, until: float) -> None:
        """Make an object of ours, by repeating the same key and bytes; being there already is proof.

        A block that comes after the window of its birth is never absorbed, so it is never acknowledged either.
        """
        birth = names.birth_of(key) if self._shelf.clock is not None else None
        pause = Pause(until, self._shelf.wire.ending)
        while True:
            try:
                self._shelf.wire.create(key, data)
                break
            except Refused:
                if self._look(key, until) is not None:
                    break
            except Doubt:
                pass
            if pause.over() or (birth is not None and self._clock() - birth > WINDOW):
                raise self._unknown(key)
            pause.wait()
        if birth is not None and self._clock() - birth > WINDOW - _SURE:
            found = self._look(key, until)
            if found is None or found.made - birth > WINDOW:
                raise self._unknown(key)

    def _look(self, key: str, until: float) -> Listed | None:
        """At an object we may have created: without an answer nobody knows."""
        try:
            return self._shelf.wire.head(key, until)
        except Unavailable:
            raise self._unknown(key) from None

    def _unknown(self, key: str) -> Unclear:
        """An append, which alone can be repeated by its ids or keys, makes an UnknownOutcome of it."""
        return Unclear(f"{self._shelf.wire.place} did not say whether {key.rpartition('/')[2]} was written")
