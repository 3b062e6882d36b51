"""The writer: every step that waits, in one write to SlateDB; and the reader beside it, on what is durable."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from ....errors import Fenced, Unavailable
from ... import formats
from ..folder.commit_thread import Work
from ..sums import Sums
from . import layout
from .clock import SlateClock
from .database import Database, Opened
from .faults import another, translated
from .index import Entry, Index, Recent
from .views import Files, Group, Snapshot

_BURIALS = 1000  # rows of deleted objects that go with one write
_PAUSE = 1.0  # seconds between attempts to open again after a failure
Operations = list[tuple[bytes, bytes | None]]


class State:
    """What is durable, in memory; replaced as a whole when the database is opened again."""

    def __init__(self, database: Database, opened: Opened) -> None:
        self.database = database
        self.index = Index(opened.entries)
        self.recent = Recent()
        self.files = Files()
        self.graves = opened.gone  # tags of bytes that nothing refers to any more

    def fetch(self, tag: int) -> bytes | None:
        return self.database.get(layout.data_row(tag))


class Committer:
    """Owns the database; `run` and `finish` are called in its lane's thread. Opens it with the first group."""

    clock: SlateClock
    format: int  # from the first group on

    def __init__(
        self,
        make: Callable[[], Database],
        *,
        prepare: Callable[[], list[str]],
        clock: Callable[[], float] | None,
        announce: Callable[[list[str]], None],
    ) -> None:
        self._make = make
        self._prepare = prepare
        self._given_clock = clock
        self._announce = announce
        self._tags = count(secrets.randbits(62))  # a random start: no two lives of a key agree
        self._tried = 0.0
        self.flushed = 0.0  # when, by the monotonic clock, something was last written
        self.state: State | None = None
        self.sums = Sums()
        self.lock = threading.Lock()  # held while the durable state is read by a step, or changes
        self.made: list[str] = []  # what opening had to make, in words

    @property
    def failed(self) -> BaseException | None:
        return self.state.database.failed if self.state is not None else None

    def run(self, works: list[Work]) -> Callable[[], None] | None:
        """One group: every step, one durable write; then, after the callers, others are told."""
        try:
            state = self._ready()
        except BaseException as error:  # noqa: BLE001 - it is the callers', and the thread must live on
            fail_all(works, error)
            return None
        group = self._group(state)
        done = [work for work in works if work.begin() and _run_step(group, work)]
        try:
            self._commit(state, group)
        except BaseException as error:  # noqa: BLE001 - as above
            fail_all(done, error)
            return None
        return partial(self._announce, group.topics) if group.topics else None

    def write_file(self, key: str, data: bytes) -> None:
        """From any thread: the bytes, and a row that says they are nobody's, on their way to the next flush."""
        state = self.state
        assert state is not None
        tag = next(self._tags)
        data = bytes(self.sums.sealed(key, data))
        state.database.write([(layout.data_row(tag), data), (layout.gone_row(tag), b"1")], durable=False)
        before = state.files.add(key, tag)
        if before is not None:
            state.graves.append(before)

    def raise_format(self) -> None:
        """In the lane."""
        state = self.state
        assert state is not None
        state.database.write([(layout.FORMAT_ROW, str(formats.LOG).encode())])
        self.format = formats.LOG
        self.sums.set(formats.LOG)

    def sweep(self, older_than: float) -> int:
        """In the lane: forget files that nobody adopted; their bytes go with the next writes."""
        state = self.state
        assert state is not None
        old = state.files.older(older_than)
        state.graves += [state.files.tags.pop(key)[0] for key in old]
        return len(old)

    def finish(self) -> None:
        if self.state is None:
            return
        database = self.state.database
        operations = self._burials(self.state)
        if operations and database.failed is None:
            operations += self._clock_rows(self.clock.now())
            try:
                database.write(operations)
            except (Fenced, Unavailable):
                pass  # the next to open finds what is left
        database.close()

    def _ready(self) -> State:
        """The open database; opened again, once a second at most, after an error that put a write in doubt."""
        state = self.state
        if state is None:
            self.made += self._prepare()
            database = self._make()
            opened = database.open()
            self.clock = SlateClock(opened.latest, opened.apart, given=self._given_clock)
            if opened.is_new:
                self.made.append("create the SlateDB database")
            self.format, self.store_id = opened.format, opened.store_id
            self.sums.set(opened.format, opened.born)
            self.state = state = State(database, opened)
        try:
            state.database.refuse_fenced()
        except Fenced:
            raise
        except Unavailable as error:
            return self._again(state, error)
        return state

    def _again(self, state: State, error: Unavailable) -> State:
        now = time.monotonic()
        if now < self._tried + _PAUSE:
            raise error
        self._tried = now
        state.database.close()
        database = self._make()
        try:
            opened = database.open(only_after=state.database.epoch)
        except Fenced as fenced:
            state.database.failed = fenced  # for good: another process owns it
            raise
        with self.lock:
            self.state = State(database, opened)
        return self.state

    def _clock_rows(self, now: float) -> Operations:
        apart = self.clock.calendar().ahead
        return [(layout.CLOCK_ROW, layout.encode_instant(now)), (layout.APART_ROW, layout.encode_instant(apart))]

    def _group(self, state: State) -> Group:
        group = Group(
            state.index, state.recent, state.fetch,
            files=state.files, tags=self._tags, now=self.clock.now(), sums=self.sums
        )  # fmt: skip
        group.calendar = self.clock.calendar()
        return group

    def _commit(self, state: State, group: Group) -> None:
        if not group.changed:
            return
        left: list[int] = []
        operations = [each for key, entry in group.changed.items() for each in _rows(state, group, key, entry, left)]
        kept = {entry.tag for entry in group.changed.values() if entry is not None}
        operations += [(layout.gone_row(tag), None) for tag in group.adopted if tag in kept]
        left += [tag for tag in group.adopted if tag not in kept]
        operations += self._burials(state)
        if self.clock.is_to_be_noted(group.now):
            operations += self._clock_rows(group.now)
        state.database.write(operations)
        self.flushed = time.monotonic()
        self._apply(state, group, left)

    def _apply(self, state: State, group: Group, left: list[int]) -> None:
        for key in group.adopted.values():
            state.files.tags.pop(key, None)
        with self.lock:
            for key, entry in group.changed.items():
                state.index.set(key, entry)
        for entry in group.changed.values():
            if entry is not None and entry.tag in group.written:
                state.recent.add(entry.tag, group.written[entry.tag])
        for tag in left:
            state.recent.forget(tag)
        state.graves += left

    @staticmethod
    def _burials(state: State) -> Operations:
        """Rows of bytes that the durable state does not refer to: only now may they go."""
        tags, state.graves[:_BURIALS] = state.graves[:_BURIALS], []
        return [(row, None) for tag in tags for row in (layout.data_row(tag), layout.gone_row(tag))]


def _rows(state: State, group: Group, key: str, entry: Entry | None, left: list[int]) -> Operations:
    """What one change writes. Bytes that lie apart stay until the change is durable: `left`, and a row that says so."""
    before = state.index.entries.get(key)
    rows: Operations = []
    if before is not None and before.data is None:
        left.append(before.tag)
        rows.append((layout.gone_row(before.tag), b"1"))
    if entry is not None:
        if entry.tag in group.written:
            rows.append((layout.data_row(entry.tag), group.written[entry.tag]))
        rows.append((layout.object_row(key), layout.encode(entry)))
    elif before is not None:
        rows.append((layout.object_row(key), None))
    return rows


class Reader:
    """Groups share the durable state, and hold nobody up but the last act of a commit."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    def run(self, works: list[Work]) -> None:
        committer = self._committer
        with committer.lock:
            state = committer.state
            assert state is not None
            try:
                state.database.refuse_fenced()
            except (Fenced, Unavailable) as error:
                fail_all(works, error)
                return
            view = Snapshot(state.index, state.recent, state.fetch, sums=committer.sums)
            view.now, view.calendar = committer.clock.now(), committer.clock.calendar()
            for work in works:
                if work.begin():
                    _read(view, work)
            try:
                state.database.refuse_moved()
            except (OSError, Unavailable) as error:
                fail_all(works, error)


def _run_step(group: Group, work: Work) -> bool:
    group.step_begins()
    try:
        work.result = work.step(group)
    except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
        work.fail(translated(error))
        group.step_failed()
        return False
    return True


def _read(view: Snapshot, work: Work) -> None:
    try:
        work.result = work.step(view)
    except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
        work.fail(translated(error))


def fail_all(works: list[Work], error: BaseException) -> None:
    """The same for each, but an exception of its own."""
    ours = translated(error)
    for work in works:
        work.fail(another(ours))
