"""What the log engine needs underneath: keys with bytes, and transactions over them.

An *atomic* space never answers ambiguously and changes several keys in one step. Its repeat window R is 0, and the
rules of the protocol collapse to "decide and write inside one transaction". On a bucket R is some seconds. There a step
may run several times: it replaces one object at most, and what it creates has the same names and bytes each time.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from ...errors import StoreError, Unavailable
from ..base import Check
from .calendar import Calendar

if TYPE_CHECKING:
    from .repeat_window import Home, RepeatWindow
    from .sums import Sums

T = TypeVar("T")
Buffer: TypeAlias = bytes | memoryview
ORPHAN_SECONDS = 3600.0  # after which what nothing speaks of is nobody's: a writer may take its time
LAST = "\U0010ffff"  # above every key that continues a prefix
Range: TypeAlias = tuple[str, str, int]  # keys from, up to (not including), and how many at most
Survey: TypeAlias = tuple[list[bytes | None], list[list[str]]]


class Unclear(Unavailable):
    """No answer in time, and the step may have taken effect."""


class Stale(StoreError):
    """What a step believed in is gone: it was looking at an old head, or something is missing for good."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """An object: its bytes and a tag that changes with every write of the key."""

    data: bytes
    tag: int


class Reading(Protocol):
    """A consistent view. Methods are plain calls: a step runs where the data is."""

    now: float  # the space's clock when the view was opened
    calendar: Calendar  # and how it lay to the wall clock

    def get(self, key: str) -> Found | None:
        """An object, or None; a file whose bytes are gone is None too."""

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Keys that start with `prefix` and lie above `after`, in order of their bytes."""

    def survey(self, keys: Sequence[str], ranges: Sequence[Range]) -> Survey:
        """Several looks in one trip: the bytes of objects that are no files, and the first keys of ranges.

        With a repeat window options may be some seconds old; a head that is written is checked by that.
        """

    def made(self, key: str) -> float | None:
        """With a repeat window: when a listed object was written, by the space's clock. None: not known."""


class Transaction(Reading, Protocol):
    """A view that writes; everything of a step happens, or nothing."""

    def create(self, key: str, data: Buffer) -> bool:
        """Only if absent; False: it is there already."""

    def adopt(self, key: str) -> bool:
        """Make a file written by `Space.write_file` an object; False: it is one already."""

    def put(self, key: str, data: Buffer, *, proof: Callable[[bytes | None], bool] | None = None) -> None:
        """Create or replace; with a repeat window only what is unchanged since it was read here.

        `proof` tells from the object's bytes at a later time whether this write was among its versions.
        """

    def delete(self, key: str) -> bool:
        """False: it was not there. A file goes after the commit."""

    def signal(self, topic: str) -> None:
        """Wake everybody who watches the topic, in every process, once this is durable."""


class Shrinking(Protocol):
    """What a space may do besides: give back what deleted objects have left, if that is much."""

    async def shrink(self) -> None:
        """Look whether it is, and do it."""


class Watched(msgspec.Struct, frozen=True, gc=False):
    """A log that is waited for: its topic, the ticket from before the last look, and its root."""

    topic: str
    ticket: int
    root: str


class Watchful(Protocol):
    """What a space may do besides: look for changes that nobody told it of, once for all who wait."""

    async def watch_log(self, topic: str, timeout: float, *, since: int, root: str) -> bool:
        """As `Space.watch`, and also True within a poll interval after anybody has changed the log at `root`."""

    def is_unchanged(self, topic: str, root: str, *, since: float) -> bool:
        """Somebody in this process watches the log, and nobody has changed it since then, by `time.monotonic`."""


@runtime_checkable
class Verifying(Protocol):
    """What a space may do besides: verify what lies beneath its objects."""

    async def verify(self) -> list[str]:
        """What is wrong, in words."""


NewFiles: TypeAlias = Sequence[tuple[str, Buffer]]


class Space(Protocol):
    """An open space."""

    file_threshold: int | None  # blocks of at least so many bytes go through `write_file`; None: never

    request_costs: bool  # every look is a request: paid for, and a trip of its own

    @property
    def sums(self) -> Sums:
        """How objects are sealed here."""

    @property
    def store_id(self) -> str:
        """Which store this is; copies of it have the same. Empty: it does not say."""

    @property
    def format(self) -> int:
        """The format that is written here, as it was when the space was opened; see `stores/formats.py`."""

    async def raise_format(self) -> None:
        """To the newest."""

    def repeat_window(self, home: Home) -> RepeatWindow:
        """How a partition deals with writes that may be repeated or arrive late."""

    def clock(self) -> float:
        """Seconds that only count up, the same for everybody who shares the space; the wall clock does not move them.

        They are since 1970 as far as the wall clock was right when the space was made, see `calendar`.
        """

    def calendar(self) -> Calendar:
        """How that clock lies to the wall clock now."""

    def transact(
        self,
        step: Callable[[Transaction], T],
        *,
        deadline: float | None = None,
        lane: str = "",
        files: NewFiles = (),
        lasting: bool = True,
    ) -> Awaitable[T]:
        """Run the step in a transaction; the result comes when its writes are durable.

        `files` are written before, as by `write_file`, for the step to adopt. What is not `lasting` need not be on the
        disk yet: it outlasts every process, but not the machine.

        Steps of one lane replace the same object; a space that cannot run them together runs them one by one.

        Steps that wait together share one commit; a step that raises is undone alone, and its error is raised here.
        After `deadline` seconds: Unavailable, and the step will not run any more.
        """

    def at_once(
        self, step: Callable[[Transaction], T], *, files: NewFiles = (), lasting: bool = True
    ) -> tuple[T] | None:
        """The same in the calling thread, for a lone step: its result in a tuple.

        None: it was not run, since this thread has an event loop that must not wait for a disk, or it might have taken
        long; `transact` it.
        """

    def transact_from_thread(
        self, step: Callable[[Transaction], T], *, deadline: float | None = None, lane: str = ""
    ) -> T:
        """The same, blocking, from any thread."""

    def read(self, step: Callable[[Reading], T], *, deadline: float | None = None) -> Awaitable[T]:
        """Run the step on a snapshot, without holding anybody up."""

    async def write_file(self, key: str, data: Buffer) -> None:
        """Write bytes durably under a key that is no object yet; invisible until `Transaction.adopt`."""

    async def remove(self, keys: list[str]) -> None:
        """Delete objects, whatever refers to them; returns when that is certain."""

    def ticket(self, topic: str) -> int:
        """How many signals the topic has seen; taken before looking, it makes a signal during the look count.

        Observation (of other processes too) begins here, so the order is: ticket, look, watch(since=ticket).
        """

    async def watch(self, topic: str, timeout: float, *, since: int | None = None) -> bool:
        """Wait for a signal on the topic after the ticket `since` (None: from now); False after `timeout`.

        True means "look again" and may be spurious: where nobody can wake us, it comes after the poll interval.
        """

    def tickets(self, topics: Sequence[str]) -> list[int]:
        """Those of several topics."""

    async def watch_any(self, watched: Sequence[Watched], timeout: float) -> bool:
        """As `watch`, for the first of several; a space that looks for itself looks below their roots too."""

    async def sweep(self, older_than: float) -> int:
        """Remove files of no object, older than so many seconds, that crashes left."""

    async def check(self) -> list[Check]:
        """The space's lines for `doctor`."""

    async def install(self, *, dry_run: bool) -> list[str]:
        """Make what is needed; the steps in words."""

    async def uninstall(self) -> list[str]:
        """Remove everything that is ours; what was left, in words."""

    async def close(self, *, within: float = math.inf) -> None:
        """Give everything back; what does not answer `within` these seconds is left behind."""
