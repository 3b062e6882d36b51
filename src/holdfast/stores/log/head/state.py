"""What a head holds, and what can be asked of it: plain values.

Messages are handled in sets, (block, mask of places), so that a hundred completions cost one operation. A message of
an absorbed block is in exactly one of: fresh (not claimed yet), leased, waiting (for its time), settled (its outcome
gathers for the next flush), frozen (a flush is writing it) or gone.
"""

from __future__ import annotations

from collections.abc import Container
from operator import attrgetter
from typing import Literal, TypeAlias

import msgspec

from .... import ids
from ....schedules import Mark
from ..calendar import IN_STEP, Calendar
from ..names import BlockName, due_of, instant_of, is_of_flush, parse_block
from . import bits
from .pipelines import FOREVER as FOREVER
from .pipelines import NOTHING, Pipes

FLUSH_MOST = 50_000  # messages that one flush writes
Ending: TypeAlias = Literal["dead", "failed", "moved"]  # moved: failed here, and sent to another queue
LEADS_TO = {  # what a settlement makes of a message; a retry with no attempt left is dead
    "complete": ("completed",),
    "release": ("release",),
    "retry": ("retry", "dead", "failed", "moved"),
    "dead": ("dead", "failed", "moved"),
}


_FAST = 0.01  # of a second that a bucket's clock may gain in one
_FAST_MOST = 1.0  # seconds that it may gain in all: dates are whole ones
ENDLESS = 1 << 30  # attempts of a dead letter
NEVER = float("inf")  # an instant that does not come
_until = attrgetter("until")  # in a `map`, which takes no step of ours for each of some hundred blocks


class Rules(msgspec.Struct, frozen=True):
    """What the queue's options mean to the head."""

    max_attempts: int = 3
    retry_expired: bool = True
    archive: bool = True
    dead: Ending = "dead"  # how a message ends that has no attempt left
    paused: bool = False
    names_workers: bool = True  # of retries; not in the first format
    names_holders: bool = True  # of leases; from the fourth format on
    window: float = 0.0  # seconds in which a write may be repeated or arrive late; 0: never
    margin: float = 0.0  # seconds after which an instant of somebody else has certainly come: clocks differ
    own: str = ""  # how the tokens of this process begin
    own_blocks: Container[str] = ()  # keys of delayed blocks that this process has written
    now: float = 0.0  # with a margin: the clock of this process, by which it judges its own instants
    calendar: Calendar = IN_STEP  # how the store's clock lies to it
    epoch: float = 0.0  # with a window: when the space was last copied or restored as a whole; 0: never

    def come_at(self, instant: float, *, is_own: bool) -> float:
        """When it has come, by this process's clock: somebody else's may be behind it."""
        return instant if is_own else instant + self.margin

    def has_come(self, instant: float, now: float, *, is_own: bool) -> bool:
        return self.come_at(instant, is_own=is_own) <= (self.now if is_own and self.now else now)


def lasting(seconds: float) -> float:
    """What is at least so many seconds by a clock that may run fast while it is corrected, as that of a bucket."""
    return seconds + min(_FAST * seconds, _FAST_MOST)


class Block(msgspec.Struct, frozen=True, gc=False):
    """An absorbed block. Places from `next` on are fresh, but for those in `skip`; `gone` counts the rows that left."""

    no: int
    key: str
    name: BlockName
    order: str
    due: float  # by the store's clock
    next: int = 0
    gone: int = 0
    skip: int = 0
    until: float = NEVER  # by the store's clock: after it nobody gets its messages

    @classmethod
    def of(
        cls, no: int, key: str, next: int = 0, gone: int = 0, skip: int = 0, *, calendar: Calendar = IN_STEP
    ) -> Block:
        name = parse_block(key)
        until = instant_of(name.expires, calendar) if name.expires else NEVER
        return cls(no, key, name, name.order, due_of(key, calendar), next, gone, skip, until)

    def fresh(self) -> int:
        return bits.span(self.next, self.name.count) & ~self.skip

    @property
    def is_untouched(self) -> bool:
        """Some of its messages were never claimed."""
        return self.next < self.name.count

    def due_at(self, rules: Rules) -> float:
        """When its messages may be given, by this process's clock."""
        if not self.due or not rules.margin:
            return self.due
        born = ids.born_at(int(self.name.block, 16))
        return rules.come_at(born + lasting(self.due - born), is_own=self.key in rules.own_blocks)

    def is_due(self, now: float, rules: Rules) -> bool:
        if self.due > now or not self.due or not rules.margin:
            return self.due <= now
        return self.due_at(rules) <= (rules.now if rules.now and self.key in rules.own_blocks else now)

    def ready(self, now: float, rules: Rules) -> int:
        """How many fresh messages it can give; what comes back from waiting or leases is only more."""
        return self.fresh().bit_count() if self.is_due(now, rules) and self.until > now else 0

    def limit(self, rules: Rules) -> int:
        if rules.max_attempts == ENDLESS:  # dead letters carry the number of their queue, for the day they are replayed
            return ENDLESS
        return self.name.max_attempts or rules.max_attempts


class Lease(msgspec.Struct, frozen=True, gc=False):
    """Messages held under one token. `crashed`: an earlier lease of them expired."""

    token: str
    block: int
    mask: int
    expires: float
    attempts: int
    crashed: bool
    claimed: float = 0.0  # when it began; an extension does not change it
    worker: str | None = None  # who holds them; None: it said nothing, or the store's format has no place for it

    def over_at(self, rules: Rules) -> float:
        """When others may take it, by this process's clock."""
        return rules.come_at(self.expires, is_own=self.token.startswith(rules.own))

    def is_over(self, now: float, rules: Rules) -> bool:
        return rules.has_come(self.expires, now, is_own=self.token.startswith(rules.own))


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """Messages that come back at `due`, where 0 is at once: retries and releases."""

    block: int
    mask: int
    due: float
    attempts: int
    crashed: bool
    error: str | None
    token: str
    status: Literal["retry", "release"]
    worker: str | None = None  # that gave them back; None: it said nothing, or the store's format has no place for it

    def due_at(self, rules: Rules) -> float:
        """When they may be given, by this process's clock."""
        return rules.come_at(self.due, is_own=self.token.startswith(rules.own))

    def is_due(self, now: float, rules: Rules) -> bool:
        return not self.due or rules.has_come(self.due, now, is_own=self.token.startswith(rules.own))


class Settled(msgspec.Struct, frozen=True, gc=False):
    """Outcomes that wait for the flush; `results` go with the places in order, None when there is none at all."""

    block: int
    mask: int
    status: Literal["completed", "replayed"] | Ending
    at: float
    attempts: int
    error: str | None
    worker: str | None
    token: str
    results: list[bytes | None] | None
    claimed: float = 0.0  # when the lease began that ended so; 0: there was none


class Past(msgspec.Struct, frozen=True, gc=False):
    """An attempt at messages that the head still holds; those that happened before lie in their block."""

    block: int
    mask: int
    start: float
    end: float
    worker: str | None
    error: str | None  # its beginning


class Frozen(msgspec.Struct, frozen=True):
    """The set a flush is writing. Whoever finds it finishes it, with the same names and the same rows."""

    flush: str
    since: float
    settled: list[Settled]
    waiting: list[Waiting]
    earlier: list[tuple[str, list[int]]] = []  # flushes that were given up, and which of their blocks exist

    @property
    def origin(self) -> str:
        """The flush that names the archive file."""
        return self.earlier[0][0] if self.earlier else self.flush

    def wrote(self, key: str) -> bool:
        """Whether a block is one of this set, under whichever of its names."""
        return any(is_of_flush(key, flush) for flush in (self.flush, *(flush for flush, _ in self.earlier)))


def in_one_flush(settled: list[Settled]) -> int:
    """How many groups a flush takes: a pipeline ends more messages at once than one file should hold."""
    rows = 0
    for place, group in enumerate(settled, 1):
        rows += group.mask.bit_count()
        if rows >= FLUSH_MOST:
            return place
    return len(settled)


class Recent(msgspec.Struct, frozen=True, gc=False):
    """Settlements whose rows are gone, so that repeating one is still success."""

    token: str
    block: int
    mask: int
    status: str


class Beyond(msgspec.Struct, frozen=True):
    """What a head needs only where a write can be repeated or arrive late (see `repeat.py`)."""

    graveyard: tuple[str, ...] = ()  # finished blocks that may still be created again
    forgets: int = 0  # how many the graveyard has forgotten
    purged_at: float = 0.0  # blocks written before are gone
    sessions: dict[str, tuple[int, float]] = {}  # by committer: its last attempt that was applied, and when
    aside: dict[str, float] = {}  # late blocks that nobody absorbs, and when they were written, until they are copied
    archived: dict[int, int] = {}  # by day: messages that flushes have written into the archive, see `archive_index.py`

    @property
    def refused(self) -> set[str]:
        """Keys that are not absorbed although the head does not hold them: buried, or set aside."""
        return {*self.graveyard, *self.aside}


class Head(msgspec.Struct):
    """Everything in it is immutable, so that a copy is cheap and a change replaces what it touches."""

    now: float = 0.0
    serial: int = 0
    completed: int = 0
    failed: int = 0
    blocks: dict[int, Block] = {}
    leases: list[Lease] = []
    waiting: list[Waiting] = []  # by due
    settled: list[Settled] = []
    frozen: Frozen | None = None
    recent: list[Recent] = []
    pipes: Pipes = NOTHING
    beyond: Beyond = Beyond()
    schedules: dict[str, Mark] = {}  # how far each has come
    past: list[Past] = []  # in the order of their ends

    def change(self, no: int, **fields: int) -> None:
        """Replace fields of a block."""
        self.blocks[no] = msgspec.structs.replace(self.blocks[no], **fields)

    def lose(self, no: int, count: int) -> None:
        """Rows of a block have left."""
        self.change(no, gone=self.blocks[no].gone + count)

    @property
    def held(self) -> int:
        """How many listed blocks a claim need not look at again."""
        return len(self.blocks) + len(self.beyond.graveyard) + len(self.beyond.aside)

    def block_at(self, key: str) -> Block | None:
        return next((block for block in self.blocks.values() if block.key == key), None)

    def first_end(self) -> float:
        """When the first message of its blocks expires, held or not."""
        return min(map(_until, self.blocks.values()), default=NEVER)

    def ticket(self) -> ListTicket:
        """For lists that are made from now on; of a head that was there, not of one that we try to write."""
        return ListTicket(self.beyond.forgets)

    def copy(self) -> Head:
        """A head whose changes do not show in this one."""
        return msgspec.structs.replace(
            self,
            blocks=dict(self.blocks),
            leases=list(self.leases),
            waiting=list(self.waiting),
            settled=list(self.settled),
            recent=list(self.recent),
            past=list(self.past),
        )


class Gathered:
    """How much the outcomes of a head are: from one head to the next mostly some more, and only these are counted."""

    def __init__(self) -> None:
        self._counted: list[Settled] = []
        self.rows = 0
        self.bytes = 0  # of what they carry along

    def count(self, settled: list[Settled]) -> None:
        known = len(self._counted)
        if known > len(settled) or (known and settled[known - 1] is not self._counted[-1]):
            known = self.rows = self.bytes = 0
        for group in settled[known:]:
            self.rows += group.mask.bit_count()
            self.bytes += len(group.error or "") + sum(len(result or b"") for result in group.results or ())
        self._counted = settled


# What can be asked of a head.


class Settle(msgspec.Struct, frozen=True, gc=False):
    """The holder of a token decides over some of its messages; `results` by place."""

    token: str
    block: int
    mask: int
    action: Literal["complete", "retry", "dead", "release"]
    delay: float = 0.0
    keep: bool | None = None
    error: str | None = None
    worker: str | None = None
    results: dict[int, bytes] = {}


class Extend(msgspec.Struct, frozen=True, gc=False):
    token: str
    block: int
    mask: int
    seconds: float


class TakeBack(msgspec.Struct, frozen=True, gc=False):
    """End leases now, as if their time had come; `token`, which nobody has, takes the place of their holders'."""

    block: int
    mask: int
    token: str


class Rewrite(msgspec.Struct, frozen=True, gc=False):
    """A message that nobody holds waits in a block of its own from now on; `key` is that of the block.

    `delay` and `at` (by the store's clock) say when it is due; neither: as before.
    """

    block: int
    mask: int
    key: str
    token: str
    delay: float | None = None
    at: float | None = None


class Remove(msgspec.Struct, frozen=True, gc=False):
    """End messages that nobody holds: as failed with this error, or, without one, without a trace."""

    block: int
    mask: int
    error: str | None = None
    replay: bool = False  # they go back into their queue with the next flush
    held: bool = False  # also those that somebody holds


class Purge(msgspec.Struct, frozen=True, gc=False):
    """Drop everything that is not held or settled; also blocks written before an instant, absorbed or not."""

    before: float = 0.0


class ListTicket(msgspec.Struct, frozen=True, gc=False):
    """Taken before a list is made: how many finished blocks the log's head had forgotten by then.

    What is forgotten later may still be on the list, so a head with another count absorbs nothing from it. Only
    `Head.ticket` makes one: a list cannot be judged by a head that was read after it.
    """

    forgets: int = 0


class Absorb(msgspec.Struct, frozen=True, gc=False):
    """Take blocks in, unless the list they come from is older than a forgetting."""

    keys: list[str]
    source: ListTicket | Literal["own"]  # own: who absorbs them has just made them, and nobody else knows them
    spent: list[str] = []  # bundles whose parts are among the keys


class Expire(msgspec.Struct, frozen=True, gc=False):
    """End the messages whose lease is over with no attempt left, and those that nobody holds and that have expired."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    token: str
    limit: int
    lease: float
    worker: str | None = None


class Freeze(msgspec.Struct, frozen=True, gc=False):
    flush: str


class Drop(msgspec.Struct, frozen=True, gc=False):
    flush: str


class Refreeze(msgspec.Struct, frozen=True, gc=False):
    """Give a frozen set another flush, since nobody can create blocks of the old one any more; `made` exist."""

    old: str
    new: str
    made: list[int]


class Forget(msgspec.Struct, frozen=True, gc=False):
    """Buried blocks whose deletion is final."""

    keys: list[str]


class SetAside(msgspec.Struct, frozen=True, gc=False):
    """Late blocks, by key and when they were written: from now on nobody absorbs them."""

    keys: dict[str, float]


class Bury(msgspec.Struct, frozen=True, gc=False):
    """Blocks that were set aside and are copied: the graveyard deletes them, and the `parts` of bundles among them."""

    keys: list[str]
    parts: list[str] = []


class Taken(msgspec.Struct, frozen=True, gc=False):
    """What a claim gave, a set at a time."""

    block: int
    mask: int
    expires: float
    attempt: int
    recovered: bool  # taken from an expired lease
    alone: bool


class Exhausted(msgspec.Struct, frozen=True, gc=False):
    """What an expiry ended."""

    block: int
    mask: int
    attempts: int
    lapsed: Block | None = None  # where its own time was over, not a lease: it may have come and gone in one step


Intent: TypeAlias = (
    Settle
    | Extend
    | TakeBack
    | Rewrite
    | Remove
    | Purge
    | Absorb
    | Expire
    | Claim
    | Freeze
    | Drop
    | Refreeze
    | Forget
    | SetAside
    | Bury
)
Result: TypeAlias = int | float | bool | list[Taken] | list[Exhausted] | None


class Applied(msgspec.Struct, frozen=True):
    """The new head, a result per intent in their order, and the keys of blocks of which nothing is left."""

    head: Head
    results: list[Result]
    finished: list[str]
