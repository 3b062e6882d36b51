"""What the `http://` store and a server say to each other: the seam's methods, one to one, in msgpack.

A request is `POST /seam/v1/<verb>` with a tuple of arguments. An answer is 200 with its value, or an error with what
is needed to raise it again. The two ends are of one version of this table; `open` says which.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal

import msgspec

from ... import errors
from ...config import QueueOptions
from ...errors import HoldfastError
from ...schedules import Plan
from ..base import Check, QueueInfo, Recovered
from ..records import Answer, Change, Claims, Dedup, Enqueued, Envelope, Settlement, Stats, Stored, Terms, View
from ..scheduling import Fire, Scheduled
from ..values import Value
from ..worker_reports import ProcessReport

VERSION = 5  # of this table
PREFIX = "/seam/v1/"  # the same for all: so both ends can tell that they are not of one version
MSGPACK = "application/msgpack"

Role = Literal["read", "work", "operate", "admin"]


class Columns(msgspec.Struct, frozen=True, array_like=True):
    """Messages that differ in nothing but their payload."""

    payloads: list[bytes]
    content_type: str
    terms: Terms


class Append(msgspec.Struct, frozen=True, array_like=True):
    """One call. `after` is the server that a first try went to, if there was one."""

    queue: str
    call: str
    after: str | None = None
    columns: Columns | None = None
    envelopes: list[Envelope] = []
    digest: str = ""


class AppendOnce(Append, frozen=True, array_like=True):
    """One call whose answer says which messages are new."""

    dedup: Dedup = "window"
    replace: bool = False

    @property
    def repeats(self) -> bool:
        """Whether doing it again adds nothing: every message has a key."""
        return all(each.dedup_key is not None for each in self.envelopes)


class Hello(msgspec.Struct, frozen=True):
    """What a client must know of the server and its store."""

    version: int  # of this table
    server: str  # which process: another one knows nothing of what the first was asked
    prefetch: int
    batch_size: int
    remembers_calls: bool
    keeps_worker_reports: bool = False
    keeps_values: bool = False


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error of ours, on its way."""

    type: str
    text: str
    ids: list[str] = []
    actual: int = 0
    limit: int = 0
    queue: str = ""
    key: str = ""


class Verb:
    """One method of the seam. `repeats`: asking again after a lost answer changes nothing more."""

    def __init__(self, role: Role, asked: Any, answered: Any, *, repeats: bool = True) -> None:
        self.role = role
        self.repeats = repeats
        self.read_request = msgspec.msgpack.Decoder(asked).decode
        self.read_answer = msgspec.msgpack.Decoder(answered).decode


_Leases = list[tuple[str, str]]
VERBS: dict[str, Verb] = {
    "open": Verb("read", tuple[()], Hello),
    "check": Verb("read", tuple[()], list[Check]),
    "clock": Verb("read", tuple[()], float),
    "queues": Verb("read", tuple[()], list[QueueInfo]),
    "queue": Verb("read", tuple[str], QueueInfo | None),
    "stats": Verb("read", tuple[str], Stats),
    "stats_of_all": Verb("read", tuple[()], list[tuple[QueueInfo, Stats]]),
    "get": Verb("read", tuple[str, list[str]], list[Stored | None]),
    "find_queue": Verb("read", tuple[list[str], str], str | None),
    "scan": Verb("read", tuple[str, View, str | None, int], list[Stored]),
    "upcoming": Verb("read", tuple[str, View, tuple[float, str] | None, int], list[Stored]),
    "peek": Verb("read", tuple[str, int], list[Stored]),
    "schedules": Verb("read", tuple[()], list[Scheduled]),
    "schedules_of": Verb("read", tuple[str], list[Scheduled]),
    "worker_reports": Verb("read", tuple[()], list[ProcessReport]),
    "watch": Verb("read", tuple[str, float], None),
    "append": Verb("work", Append, list[str]),
    "append_once": Verb("work", AppendOnce, list[Enqueued]),
    "claim": Verb("work", tuple[str, int, float, float, str | None], Claims),
    "ready": Verb("work", tuple[list[str], float], list[str]),
    "extend": Verb("work", tuple[str, _Leases, float], list[float | None]),
    "settle": Verb("work", tuple[str, list[Settlement]], list[Answer]),
    "fire_schedules": Verb("work", tuple[str, list[Fire]], list[bool]),
    "report_workers": Verb("work", tuple[ProcessReport], None),
    "values_get": Verb("work", tuple[list[str]], list[Value | None]),
    "values_put": Verb("work", tuple[str, bytes, str | None, float | None], str | None, repeats=False),
    "values_delete": Verb("work", tuple[list[str]], None),
    "values_sweep": Verb("work", tuple[()], int),
    "maintain": Verb("work", tuple[str], dict[str, int]),
    "cancel": Verb("operate", tuple[str, str, bool], bool, repeats=False),
    "change": Verb("operate", tuple[str, str, Change], bool),
    "take_back": Verb("operate", tuple[str, list[str] | None, str | None], int, repeats=False),
    "pause": Verb("operate", tuple[str, bool], None),
    "purge": Verb("operate", tuple[str], int, repeats=False),
    "replay": Verb("operate", tuple[str, View, list[str]], int, repeats=False),
    "discard": Verb("operate", tuple[str, View, list[str] | None, float | None], int, repeats=False),
    "recover": Verb("operate", tuple[str, bool], Recovered, repeats=False),
    "create_queue": Verb("admin", tuple[str, QueueOptions], QueueInfo, repeats=False),
    "configure": Verb("admin", tuple[str, QueueOptions], QueueInfo),
    "change_schedule": Verb("admin", tuple[str, str, Plan | None, Plan | None], bool),
    "delete_queue": Verb("admin", tuple[str, bool], None, repeats=False),
    "install": Verb("admin", tuple[bool], list[str]),
    "uninstall": Verb("admin", tuple[()], list[str] | None),
}

encode = msgspec.msgpack.encode
_read_failure = msgspec.msgpack.Decoder(Failure).decode
_KINDS = {
    name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, HoldfastError)
}


def failure(error: HoldfastError) -> Failure:
    """The error as it travels; of a kind that others do not know, as the nearest that they do."""
    kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in _KINDS)
    known = {name: getattr(error, name) for name in ("ids", "actual", "limit", "queue", "key") if hasattr(error, name)}
    return Failure(kind, str(error), **known)


def raised(data: bytes) -> HoldfastError:
    """The error that an answer tells of; msgspec's own error when it tells of none."""
    told = _read_failure(data)
    kind = _KINDS.get(told.type, errors.StoreError)
    if issubclass(kind, errors.MessageTooLarge):
        return kind(told.text, actual=told.actual, limit=told.limit)
    if issubclass(kind, errors.Damaged):
        return kind(told.text, queue=told.queue, key=told.key)
    return kind(told.text, ids=told.ids) if issubclass(kind, errors.UnknownOutcome) else kind(told.text)
