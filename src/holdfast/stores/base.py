"""The seam: what a store must do. Batch in, batch out, opaque bytes, one clock (the store's).

Rules every engine keeps, each with a test in `holdfast.testing.contract`:
- `append` returns when the messages are durable under the store's stated promise; all of a call or none.
- Every claim carries a fresh token; `extend` and `settle` compare it; a stale token changes nothing.
- The attempt is counted at the claim; a release takes it back.
- An expired lease is just "visible again", at once; with no attempt left, or a stored `NoRetry`, the message is dead.
- Repeating a settlement with the same token is "ok", for a while also when nothing of the message is kept.
- `name/dead` is the queue of dead letters of `name`: it can be claimed, extended, settled, scanned and counted.
  Completing there ends the record as completed in the archive of `name`; a retry leaves it dead, visible later;
  it never runs out of attempts.
"""

from __future__ import annotations

from asyncio import Future, Semaphore, gather, sleep
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

import msgspec

from ..config import QueueOptions
from ..errors import ConfigError, QueueNotFound
from ..limits import SHOWN_CHARS
from .capabilities import Capabilities
from .formats import Format
from .records import Answer, Change, Claims, Dedup, Enqueued, Envelope, Settlement, Stats, Stored, Terms, View

if TYPE_CHECKING:
    from .backups import Backups
    from .batches import Batches
    from .scheduling import Schedules
    from .values import Values
    from .worker_reports import WorkerReports

DEAD = "/dead"
CALLS_AT_ONCE = 32  # when every queue is asked by a call of its own
PAGE_ROWS = 1000  # of one call where nobody says how many: fewer cost a trip each, more only memory
CALL_S = 3600.0  # for which a named call is remembered: longer than anybody repeats one
LONG_POLL_S = 20.0  # a claim waits so long for the first message; proxies cut who is silent for a minute
EMPTY_S = 60.0  # for which a queue that gave nothing is believed to be empty when nobody tells otherwise
RESTS_S = 600.0  # after which a queue in which nothing happens is maintained again: retention goes by days
LOOK_AGAIN_S = 1.0  # between two looks at what nobody announces; how long a look is believed


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue as the store keeps it."""

    name: str
    options: QueueOptions
    paused: bool
    created_at: float


class Check(msgspec.Struct, frozen=True):
    """One line of `holdfast doctor`."""

    name: str
    state: str  # ok, warn or fail
    detail: str


class Recovered(msgspec.Struct, frozen=True):
    """Messages that had been set aside: brought back, known already (a repeat), deleted; and blocks beyond reading."""

    recovered: int = 0
    known: int = 0
    deleted: int = 0
    damaged: int = 0

    def __add__(self, other: Recovered) -> Recovered:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Recovered(*(one + another for one, another in pairs))


class Reread(msgspec.Struct, frozen=True):
    """One thing that a scrub has read; no `problem`: it is sound."""

    queue: str
    key: str
    size: int  # bytes
    has_sum: bool = True
    problem: str = ""


@runtime_checkable
class Scrubbing(Protocol):
    """What a store may do besides: read everything it keeps again, and verify it."""

    def scrub(self, queue: str | None, *, quarantine: bool) -> AsyncIterator[Reread]:
        """One answer for each object, and one for each that is missing; `quarantine` moves what nobody can read."""


class Store(Protocol):
    """An open store. Names of queues are checked before they get here."""

    @property
    def capabilities(self) -> Capabilities:
        """The same for as long as the store is open."""

    @property
    def batches(self) -> Batches | None:
        """The second seam, for data pipelines; None: this store does not serve them."""

    @property
    def schedules(self) -> Schedules | None:
        """Where schedules are kept; None: this store does not keep any."""

    @property
    def worker_reports(self) -> WorkerReports | None:
        """Where processes with workers report themselves; None: this store keeps no such reports."""

    @property
    def values(self) -> Values | None:
        """Where integrations of ours keep small values; None: this store keeps none, as `capabilities` say."""

    @property
    def backups(self) -> Backups | None:
        """The third seam, for backup and restore; None: this store does not serve them."""

    @property
    def format(self) -> Format | None:
        """As it was when the store was opened, or raised here; None: it keeps none."""

    async def raise_format(self) -> None:
        """Write the newest format from now on; harmless to repeat."""

    def abandon(self) -> None:
        """Tell threads of the store to end, without waiting and without a lock: it was dropped, its event loop is gone.

        Harmless on one that is closed.
        """

    async def install(self, *, dry_run: bool = False) -> list[str]:
        """Make what the store needs, idempotently; the steps (to be) taken, in words."""

    async def uninstall(self) -> list[str] | None:
        """Remove everything of Holdfast from the store, and nothing else; what was left, in words, if anything was."""

    async def close(self) -> None:
        """Give everything back; calling it twice is harmless."""

    async def check(self) -> list[Check]:
        """The store's own lines for `doctor`."""

    async def create_queue(self, name: str, options: QueueOptions) -> QueueInfo:
        """Raises QueueExists."""

    async def configure(self, name: str, options: QueueOptions) -> QueueInfo:
        """Replace the stored options. Raises QueueNotFound, as do all below."""

    async def queues(self) -> list[QueueInfo]:
        """All queues, by name."""

    async def queue(self, name: str) -> QueueInfo | None:
        """One queue, or None."""

    async def delete_queue(self, name: str, *, force: bool = False) -> None:
        """Raises QueueNotEmpty while it keeps live messages or dead letters, unless forced."""

    async def pause(self, name: str, paused: bool) -> None:
        """A paused queue takes messages and gives none."""

    async def purge(self, queue: str) -> int:
        """Drop delayed, pending and retrying messages, not held, dead or archived ones; how many."""

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        """Ids in input order; a message whose dedup key is remembered gives the first one's id and adds nothing."""

    async def append_once(
        self, queue: str, messages: Sequence[Envelope], dedup: Dedup = "window", *, replace: bool = False
    ) -> list[Enqueued]:
        """As `append`, and tells which messages are new.

        `dedup` is for one message with a key. "alive": as long as the message with this key has not ended, nothing is
        added; "waiting": the same, but one that is held does not count. `replace`: the one that has the key gets the
        value, priority and due time of this one, unless it is held.
        """

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        """Up to `limit` messages: highest priority first, then oldest; waits up to `wait` seconds for the first.

        `worker` is who holds them from then on, in every view; a settlement that names nobody keeps it.

        A message with `alone` set is the only one of its answer. An answer with nothing but `expired` comes at once.
        """

    async def ready(self, queues: Sequence[str], *, wait: float = 0.0) -> list[str]:
        """Those of these that may have something to claim, in their order; waits up to `wait` seconds for the first.

        One wait for all of them. A queue that is named may have nothing: a claim that finds nothing is remembered, and
        the queue is not named again before something has changed there, or is due.
        """

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        """(id, token) pairs; the new end of each lease, never earlier than the old, or None when it is lost."""

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        """The same, blocking, from any thread while the event loop is busy; None: this store cannot."""

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        """In input order: ok, lost (another holds or has finished it), unknown (no such message)."""

    async def cancel(self, queue: str, id: str, *, running: bool = False) -> bool:
        """End a delayed, pending or retrying message as failed with the error `cancelled`; False: it is none of these.

        `running`: also one that is held; its holder's token is stale from then on. Raises MessageNotFound.
        """

    async def change(self, queue: str, id: str, change: Change) -> bool:
        """Replace a delayed, pending or retrying message in one step, under its id; False: it is none of these.

        Its attempts stay counted, and its place among others of its priority is by its id. Raises MessageNotFound.
        """

    async def take_back(self, queue: str, ids: Sequence[str] | None, *, worker: str | None = None) -> int:
        """End the leases of these now, as if they had expired, but for their tokens, which are stale; how many.

        None: those that `worker` holds.
        """

    async def get(self, queue: str, ids: Sequence[str]) -> list[Stored | None]:
        """What is known of each; dead letters and the archive included."""

    async def find_queue(self, queues: Sequence[str], id: str) -> str | None:
        """The one of these queues (`CALLS_AT_ONCE` at most) that knows a message, or None; they need not exist."""

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        """One page in id order, above `after`."""

    async def upcoming(
        self, queue: str, view: View, *, after: tuple[float, str] | None = None, limit: int = 100
    ) -> list[Stored]:
        """One page of `delayed` or `retry`, by due time and id, above those of `after`."""

    async def peek(self, queue: str, limit: int) -> list[Stored]:
        """What the next claims would give, in their order, whether the queue is paused or not; nothing is claimed."""

    async def replay(self, queue: str, view: View, ids: Sequence[str]) -> int:
        """Dead letters move, archived messages are copied back, ids derived so that a repeat adds nothing; how many.

        Attempts from zero, header `replayed_from` = the old id.
        """

    async def discard(
        self, queue: str, view: View, ids: Sequence[str] | None = None, *, before: float | None = None
    ) -> int:
        """Delete from `dead` or `archive`: these ids, what finished before an instant, or everything; how many."""

    async def stats(self, queue: str) -> Stats:
        """Counts; never blocks the queue."""

    async def watch(self, queue: str, timeout: float) -> None:
        """Return when a message of the queue may have changed its state, at the latest after `timeout` seconds."""

    async def clock(self) -> float:
        """The store's time, in seconds since 1970."""

    async def stats_of_all(self) -> list[tuple[QueueInfo, Stats]]:
        """Every queue and its counts, by name."""

    def requests(self) -> dict[str, int] | None:
        """What was asked of a store that charges for requests, by kind, and bytes both ways; None: it does not."""

    async def maintain(self, queue: str) -> dict[str, int]:
        """Retention, merging, sweeping; what was done. One process at a time; the others return {}."""

    def is_resting(self, queue: str) -> bool:
        """Whether a worker may leave maintenance out: a store that charges for it says so for an idle queue."""

    async def recover(
        self, queue: str, *, delete: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> Recovered:
        """Bring back, or delete, what was set aside because it was written late."""


class Ordinary:
    """The answers of a store that has nothing special to say; stores inherit it."""

    capabilities = Capabilities()

    @property
    def batches(self) -> Batches | None:
        return None

    @property
    def schedules(self) -> Schedules | None:
        return None

    @property
    def worker_reports(self) -> WorkerReports | None:
        return None

    @property
    def values(self) -> Values | None:
        return None

    @property
    def backups(self) -> Backups | None:
        return None

    @property
    def format(self) -> Format | None:
        return None

    async def raise_format(self) -> None:
        return None

    def abandon(self) -> None:
        return None

    async def ready(self, queues: Sequence[str], *, wait: float = 0.0) -> list[str]:
        """A store that knows nothing of its queues without a claim: all of them, every second."""
        await sleep(min(wait, LOOK_AGAIN_S))
        return list(queues)

    async def find_queue(self, queues: Sequence[str], id: str) -> str | None:
        return await find_one_by_one(cast(Store, self), queues, id)

    async def stats_of_all(self) -> list[tuple[QueueInfo, Stats]]:
        return await stats_one_by_one(cast(Store, self))

    def requests(self) -> dict[str, int] | None:
        return None

    def is_resting(self, queue: str) -> bool:
        return False

    async def recover(
        self, queue: str, *, delete: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> Recovered:
        return Recovered()


async def stats_one_by_one(store: Store) -> list[tuple[QueueInfo, Stats]]:
    """The same with one call each, some of them at a time; a queue that somebody deletes meanwhile has none."""
    turns = Semaphore(CALLS_AT_ONCE)

    async def ask(info: QueueInfo) -> tuple[QueueInfo, Stats] | None:
        async with turns:
            try:
                return info, await store.stats(info.name)
            except QueueNotFound:
                return None

    asked = await gather(*(ask(info) for info in await store.queues()))
    return [each for each in asked if each is not None]


async def find_one_by_one(store: Store, queues: Sequence[str], id: str) -> str | None:
    """The same with one call each, some of them at a time."""

    async def ask(name: str) -> bool:
        try:
            return (await store.get(name, [id]))[0] is not None
        except QueueNotFound:
            return False

    for start in range(0, len(queues), CALLS_AT_ONCE):
        some = queues[start : start + CALLS_AT_ONCE]
        known = await gather(*map(ask, some))
        if any(known):
            return some[known.index(True)]
    return None


class Transactional(Protocol):
    """A store that can write inside a transaction of the caller's own database connection."""

    async def append(
        self, queue: str, messages: Sequence[Envelope], *, connection: Any = None, notify: bool = False
    ) -> list[str]:
        """As `Store.append`; with a connection the messages are there if and only if its transaction commits.

        `notify`: that commit wakes those that wait for them.
        """

    async def append_once(
        self,
        queue: str,
        messages: Sequence[Envelope],
        dedup: Dedup = "window",
        *,
        replace: bool = False,
        connection: Any = None,
        notify: bool = False,
    ) -> list[Enqueued]:
        """As `Store.append_once`, in the same way."""


class Sharing(Protocol):
    """A store whose place may be shared with what others keep there, when somebody says so."""

    async def install(self, *, dry_run: bool = False, shared_schema: bool = False) -> list[str]:
        """As `Store.install`; ConfigError where others keep something, unless `shared_schema`."""


def sharing(store: Store) -> Sharing:
    """The store, if it is one; ConfigError."""
    if not store.capabilities.shares_schema:
        raise ConfigError("shared_schema is for PostgreSQL; this store has no schema to share")
    return cast(Sharing, store)


NO_ROLES = "grants are for PostgreSQL; what a user of NATS needs is listed in its documentation"


class Granting(Protocol):
    """A store whose server knows roles, and can give one what producers and workers need."""

    async def grant(self, role: str) -> None:
        """Give it; StoreError where nothing is installed yet, or where we may not."""


def granting(store: Store) -> Granting:
    """The store as one that knows roles; ConfigError where it does not."""
    if not store.capabilities.grants_roles:
        raise ConfigError(NO_ROLES)
    return cast(Granting, store)


async def raise_format(store: Store, *, dry_run: bool = False) -> list[str]:
    """To the newest that this version knows; the step (to be) taken, in words, if there is one."""
    if store.format is None or not store.format.can_rise:
        return []
    step = store.format.step
    if not dry_run:
        await store.raise_format()
    return [step]


class CallName(msgspec.Struct, frozen=True):
    """What an append is known by when it is repeated; `digest` tells whether it brings the same messages."""

    name: str
    digest: str = ""


class RemembersCalls(Protocol):
    """A store that keeps the name of a call in the same step as its messages."""

    async def append_call(self, queue: str, messages: Sequence[Envelope], call: CallName) -> list[str]:
        """As `Store.append`; the same call within an hour answers the same ids and adds nothing.

        ConfigError when it brought other messages.
        """


def remembering(store: Store) -> RemembersCalls | None:
    """The store as one that remembers calls; None where it does not."""
    return cast(RemembersCalls, store) if store.capabilities.remembers_calls else None


def other_messages(call: CallName) -> ConfigError:
    return ConfigError(f"the call {call.name[:SHOWN_CHARS]!r} was made before, with other messages")


SingleAppend: TypeAlias = Callable[[bytes, str, Terms], "Future[str] | None"]


class AppendsSingly(Protocol):
    """What a store may offer besides, for single calls by the thousand."""

    def single_append(self, queue: str) -> SingleAppend | None:
        """As `append` with one message (payload, content type, terms), without a coroutine or an envelope.

        None instead of its id to come: `append` this one. None instead of the function: all of them.
        """


def single_append(store: Store, queue: str) -> SingleAppend | None:
    """Asked of the store's class: a wrapper that forwards calls does not have it."""
    found = getattr(type(store), "single_append", None)
    return None if found is None else found(store, queue)


def transactional(store: Store) -> Transactional:
    """The store as one that joins a caller's transaction; ConfigError where it does not."""
    if not store.capabilities.transactional:
        raise ConfigError("connection= joins a transaction of PostgreSQL; this store has none to join")
    return cast(Transactional, store)
