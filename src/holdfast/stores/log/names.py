"""Keys: where everything of a queue lies. A block's key says what is needed to plan: priority, order, count, attempts.

queues/<name>                                   the queue's options, and its schedules
schedules/<name>                                which queue has the schedule of this name
workers/<process>                               what a process with workers says of itself
values/<hash of the key>                        a value of an integration
swept                                           when files of no object were last looked for
scrubbed                                        when everything was last read again, and what was wrong
<name>@<incarnation>/head                       the only object that changes under load
<name>@<incarnation>/inbox/<255-priority>/<block>
<name>@<incarnation>/later/<due, ms>/<block>    by the store's clock; from DATED on: by the calendar
<name>@<incarnation>/late/<written, ms>/<key>   copies of late blocks, set aside (buckets)
<name>@<incarnation>/archive/date=<day>/<first>-<last>-<rows>-<flush>.parquet
<name>@<incarnation>/removed                    what was deleted from the archive on purpose (buckets)
<name>@<incarnation>/dead/…                     the same again for the dead letters
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from ... import ids
from .calendar import IN_STEP, Calendar

CONFIGS = "queues/"
SCHEDULES = "schedules/"
REPORTS = "workers/"
VALUES = "values/"
_ID = "[0-9a-f]{32}"
_BLOCK = re.compile(rf"({_ID})-([0-9]+)-([0-9]+)-([0-9]+)-([0-9]+)(c?)(?:x([0-9]+))?(?:-({_ID})-({_ID}))?")
_LISTED = re.compile(rf"(?:.*/)?(?:inbox/[0-9]+|later/[0-9]+)/(?:{_BLOCK.pattern}|{_ID}(?:x[0-9]+)?\.bundle)")
_ARCHIVED = re.compile(rf"({_ID})-({_ID})-([0-9]+)-({_ID})\.parquet")
_SHARD = re.compile(r"s\d{4}")
DATED = 500_000_000_000_000  # ms, added to instants of the calendar: the store's clock does not come so far
UNDATED_END = str(DATED)[0]  # what keys of the store's clock are below
HEED = "heed-"  # beside the head: earlier versions left such objects
LATE = "late/"  # below a log's root: copies of blocks that were set aside
LIVING = "living/"  # below the root of a queue in a bucket: dedup keys that hold until their message ends
PARQUET = ".parquet"  # how archive files end
SWEPT = "swept"  # of the whole space: until when nobody needs to look for files that crashes left
SCRUBBED = "scrubbed"  # the same: what the last scrub found
RESTORING = "restoring"  # below the root of a queue that is not there yet
HINT = "hint"  # beside the head: changes with the options, so that a list of the log shows it


_QUEUE = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
_FOLDERS = "inbox|later|archive|results|dedup|replayed|damaged|parts|late|recovered|living"
_SINGLE = f"head|{HINT}|{HEED}[^/]+|maintain|scanned|removed|{RESTORING}"
# Whoever removes a store goes by this: a kind of key that is not listed here would be left behind, and told.
_OURS = re.compile(
    rf"{SWEPT}|{SCRUBBED}|({REPORTS}|{VALUES}){_ID}|({CONFIGS}|{SCHEDULES}){_QUEUE}|{_QUEUE}@[0-9a-f]{{8}}/((dead|s\d{{4}})/)?({_SINGLE}|({_FOLDERS})/.+)"
)
_TOLD_MOST = 20  # names of what was left


class BadKey(ValueError):
    """A key that says nothing: whoever lists goes on without it, whoever needs it finds it damaged."""


def is_ours(key: str) -> bool:
    """Whether the engine makes keys like this one."""
    return _OURS.fullmatch(key) is not None


def told(left: Iterable[str], what: str) -> list[str]:
    """What a removal left, in words: the first names, and how many more there are."""
    names: list[str] = []
    more = 0
    for name in left:
        if len(names) < _TOLD_MOST:
            names.append(f"{what} {name}")
        else:
            more += 1
    return [*names, f"and {more:,} more"] if more else names


def is_queue(name: str) -> bool:
    """Whether a queue can have this name."""
    return re.fullmatch(_QUEUE, name) is not None


def config_key(queue: str) -> str:
    return CONFIGS + queue


def schedule_key(name: str) -> str:
    return SCHEDULES + name


def report_key(process: str) -> str:
    return REPORTS + process


def value_key(key: str) -> str:
    """Any text, so only its hash goes into a key."""
    return VALUES + hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def queue_of(key: str) -> str:
    """Whose key it is; empty: nobody's."""
    if key.startswith(CONFIGS):
        return key[len(CONFIGS) :]
    return key.partition("/")[0].rpartition("@")[0]


class BlockName(msgspec.Struct, frozen=True, gc=False):
    """What a block's key says. `first` and `last` are set when the block stores ids as a column."""

    block: str  # 32 hex digits: the id of place 0
    count: int
    priority: int
    max_attempts: int  # 0: the queue's
    attempts: int  # claims before the block was written
    crashed: bool = False  # a lease of its messages expired before
    first: str = ""
    last: str = ""
    expires: int = 0  # ms, after which nobody gets them, as `instant_of` takes it; 0: never

    @property
    def order(self) -> str:
        """Claim order: priority, then the block; what comes back goes before the rest of the block it came from."""
        if self.first:
            return f"{255 - self.priority:03d}/{ids.block_of(int(self.first, 16)):032x}!{self.first}"
        return f"{255 - self.priority:03d}/{self.block}+"

    @property
    def lowest(self) -> str:
        return self.first or self.block

    @property
    def highest(self) -> str:
        return self.last or f"{int(self.block, 16) + self.count - 1:032x}"

    def serves(self, demand: int) -> bool:
        """First in its inbox, it is enough: nothing listed behind it comes before its messages."""
        return not self.first and self.count >= demand

    def text(self) -> str:
        attempts = f"{self.attempts}c" if self.crashed else self.attempts
        text = f"{self.block}-{self.count}-{self.priority}-{self.max_attempts}-{attempts}"
        if self.expires:
            text = f"{text}x{self.expires}"
        return f"{text}-{self.first}-{self.last}" if self.first else text

    def inbox_key(self) -> str:
        return f"inbox/{255 - self.priority:03d}/{self.text()}"

    def later_key(self, due: float) -> str:
        """`due` as `number_of` takes it."""
        return f"later/{number_of(due):015d}/{self.text()}"


def parse_block(key: str) -> BlockName:
    """The name in a block's key; BadKey."""
    found = _BLOCK.fullmatch(key, key.rfind("/") + 1)
    if found is None:
        raise BadKey(f"{key} is no block's key")
    block, count, priority, most, attempts, crashed, expires, first, last = found.groups("")
    said = int(count), int(priority), int(most), int(attempts), bool(crashed)
    return BlockName(block, *said, first, last, int(expires or 0))


def is_block(key: str) -> bool:
    """Whether it is the key of a block or a bundle, in an inbox or under `later/`."""
    return _LISTED.fullmatch(key) is not None


def is_carrying(key: str) -> bool:
    """Whether it is the key of a block that has its messages' ids as a column: its name ends with the first and last.

    By their dashes: whoever lists a long inbox asks this of every key.
    """
    return key[-33:-32] == "-" == key[-66:-65]


def folder_of(key: str) -> str:
    """What lies before its name: in an inbox, the priority."""
    return key[: key.rfind("/")]


def order_of(key: str) -> str:
    """Above the claim order of everything up to this key of an inbox, and below that of what lies behind it."""
    folder, _, name = key.rpartition("/")
    return f"{folder[-3:]}/{name[:32]}~"


def birth_of(key: str) -> float | None:
    """When a block's name was made, by the store's clock; None: not a block's key."""
    if ("/inbox/" not in f"/{key}" and "/later/" not in f"/{key}") or f"/{LATE}" in f"/{key}":
        return None  # a copy under `late/` can be made at any time
    return ids.born_at(block_number(key))


def is_of_flush(key: str, flush: str) -> bool:
    """Whether a block was written by this flush: their numbers follow its own."""
    return 0 < block_number(key) - int(flush, 16) < 1 << 53


def log_of(key: str) -> str:
    """The root of the log that a block lies in."""
    parts = key.split("/", 2)
    return f"{parts[0]}/{parts[1]}/" if parts[1] == "dead" or _SHARD.fullmatch(parts[1]) else f"{parts[0]}/"


def block_number(key: str) -> int:
    return int(key[key.rindex("/") + 1 :][:32], 16)


def due_of(key: str, calendar: Calendar = IN_STEP) -> float:
    """When a block under `later/` is due, by the store's clock; 0 in the inbox. BadKey.

    Keys may be relative to the queue.
    """
    folder, _, _ = key.rpartition("/")
    above, _, due = folder.rpartition("/")
    if not above.endswith("later"):
        return 0.0
    if not due.isdecimal():
        raise BadKey(f"{key} says no time")
    return instant_of(int(due), calendar)


def number_of(instant: float) -> int:
    """An instant in a key: by the store's clock; below zero: by the calendar, and it is `-instant`."""
    return milliseconds(instant) if instant >= 0 else DATED + milliseconds(-instant)


def instant_of(number: int, calendar: Calendar = IN_STEP) -> float:
    """The same back, by the store's clock."""
    return number / 1000 if number < DATED else (number - DATED) / 1000 + calendar.ahead


_LAPSE = re.compile(r"x([0-9]+)")  # no id, number or ending has this letter


def lapse_of(key: str, calendar: Calendar = IN_STEP) -> float:
    """When the first of its messages expires, by the store's clock, as the name of a block or bundle says."""
    found = _LAPSE.search(key, key.rfind("/") + 1)
    return math.inf if found is None else instant_of(int(found[1]), calendar)


def late_key(key: str, made: float) -> str:
    """Where a block that is set aside is kept: its own key, and when its object was written."""
    return f"{LATE}{milliseconds(made):015d}/{key}"


def parse_late(key: str) -> tuple[str, float] | None:
    """The same back, from a key relative to the log; None: the name of nothing that was set aside."""
    made, _, block = key.removeprefix(LATE).partition("/")
    if not made.isdecimal() or not is_block(block) or _BLOCK.fullmatch(block, block.rfind("/") + 1) is None:
        return None
    return block, int(made) / 1000


def milliseconds(instant: float) -> int:
    """Rounded up, so that nothing is visible before its time."""
    return math.ceil(round(instant * 1000, 3))


class ArchiveName(msgspec.Struct, frozen=True, gc=False):
    """What the name of an archive file says."""

    key: str
    first: str
    last: str
    rows: int
    flush: str  # the id of the flush that wrote it; its time is when the rows were frozen

    @property
    def frozen_at(self) -> float:
        return ids.born_at(int(self.flush, 16))


def archive_key(first: str, last: str, rows: int, flush: str, calendar: Calendar = IN_STEP) -> str:
    day = datetime.fromtimestamp(calendar.wall(ids.born_at(int(flush, 16))), UTC).date().isoformat()
    return f"archive/date={day}/{first}-{last}-{rows}-{flush}.parquet"


def parse_archive(key: str) -> ArchiveName:
    """BadKey."""
    found = _ARCHIVED.fullmatch(key, key.rfind("/") + 1)
    if found is None:
        raise BadKey(f"{key} is no archive file's key")
    first, last, rows, flush = found.groups()
    return ArchiveName(key, first, last, int(rows), flush)


def plain(id: str) -> str:
    """An id as keys hold it: 32 hex digits."""
    return id.replace("-", "")


def dashed(plain: str) -> str:
    """An id as users see it."""
    return f"{plain[:8]}-{plain[8:12]}-{plain[12:16]}-{plain[16:20]}-{plain[20:]}"


def dedup_key(root: str, key: str) -> str:
    """Where it is noted that a message, or a call, has been here."""
    return f"{root}dedup/{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"
