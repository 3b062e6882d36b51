"""The oracle: one queue in plain lists and dicts, sharing no code with any store.

Every method takes what a store was asked and what it answered, raises `Divergence` when no right store could have
answered so, and remembers the answer. Where the contract leaves freedom several answers pass:
- the last holder of a lease that is over, and that nobody has taken since, may still settle or extend it, or not;
- a message whose last lease is over is pending or dead until a claim, or the loss of it, says which;
- a settlement for a message that was deleted since is lost or unknown; one repeated after
  anything else changed the message has any answer and no effect;
- a dead letter may take a moment until it can be claimed as one; such claims may count as attempts and
  their errors may be told, or not;
- a replayed message may come anywhere among those of its priority, with its own number of attempts or the queue's;
- a message that was changed goes before or after others of the same call;
- a message released with a delay is called delayed or retrying until it is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from ..config import QueueOptions
from ..retry import NoRetry
from ..stores.records import Answer, Change, Claimed, Claims, Envelope, Settlement, Stats, Stored, View

_NOBODYS = "a token that was never given"
LIVE = ("pending", "delayed", "processing", "retry")


class Divergence(AssertionError):
    """The store answered what no right store may answer."""


def agree(true: bool, *what: object) -> None:
    if not true:
        raise Divergence(" ".join(str(part) for part in what))


@dataclass
class Entry:
    """One message. `place`: live, dead, archive or gone; `names`: what it may be called while it waits."""

    id: str
    sent: Envelope
    due: float
    place: str = "live"
    names: tuple[str, ...] = ("delayed",)
    attempts: int = 0
    tries: int = 0  # claims of it as a dead letter
    token: str | None = None
    worker: str | None = None  # who holds it, or held it last
    until: float = 0.0
    expired_once: bool = False
    ended: str = ""
    error: str | None = None
    result: bytes | None = None
    copied: bool = False  # by a replay
    changed: bool = False
    used: dict[str, str] = field(default_factory=dict)  # token → the action it settled with
    settled_by: str | None = None  # the token that settled it, while nothing has changed it since


def _call_of(entry: Entry) -> str:
    """The same for messages that were sent by one call, or that a store took together."""
    return entry.id[:-5]  # which tell the place in a call


class Model:
    """What is true of one queue. `now` is moved by `advance` only."""

    def __init__(self, options: QueueOptions, now: float) -> None:
        self.options = options
        self.now = now
        self.paused = False
        self.entries: dict[str, Entry] = {}
        self.keys: dict[str, tuple[str, float]] = {}
        self.copied: set[str] = set()
        self.tokens: set[str] = set()
        self.completed = 0
        self.failed = 0

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def append(self, sent: Sequence[Envelope], answer: Sequence[str]) -> None:
        """Ids in input order, fresh unless the dedup key is remembered."""
        agree(len(sent) == len(answer), "append: one id a message", answer)
        for envelope, id in zip(sent, answer, strict=True):
            first, until = self.keys.get(envelope.dedup_key or "", ("", 0.0))
            if envelope.dedup_key is not None and until > self.now:
                agree(id == first, "append: the first id of the dedup key", first, "not", id)
                continue
            agree(id not in self.entries, "append: a fresh id, not", id)
            due = envelope.at if envelope.at is not None else self.now + envelope.delay
            self.entries[id] = Entry(id, envelope, due)
            if envelope.dedup_key is not None:
                self.keys[envelope.dedup_key] = (id, self.now + self.options.dedup_window)

    def claim(self, limit: int, lease: float, answer: Claims, *, dead: bool = False, worker: str | None = None) -> None:
        """The first `limit` of what is visible, in order; a message that must be alone is."""
        for over in answer.expired:
            agree(over.id in [entry.id for entry in self._limbo()], "claim: not expired:", over)
            entry = self.entries[over.id]
            agree((over.attempts, over.error) == (entry.attempts, "lease expired"), "claim:", over)
            self._bury(entry, "lease expired")
            agree(over.status == entry.ended, "claim: ended as", entry.ended, "not", over.status)
        self._found_dead("dead", [self.entries[m.id] for m in answer.messages if dead and m.id in self.entries])
        ready = [] if self.paused and not dead else self._ready("dead" if dead else "live")
        for number, message in enumerate(answer.messages):
            turn = {entry.id: entry for entry in (ready if dead else self._next(ready))}
            agree(message.id in turn, "claim: out of turn", message, "ready were", ready)
            entry = turn[message.id]
            agree(number == 0 or not self._alone(entry), "claim: must come alone:", message)
            ready.remove(entry)
            self._take(entry, message, lease)
            entry.worker = worker
        more = bool(ready) and not dead and not any(message.alone for message in answer.messages)
        stopped = bool(answer.messages) and any(self._alone(entry) for entry in self._next(ready))
        agree(len(answer.messages) <= limit, "claim: more than", limit)
        agree(len(answer.messages) == limit or not more or stopped, "claim: left", [e.id for e in ready], "got", answer)

    def _ready(self, place: str) -> list[Entry]:
        limbo = self._limbo()
        return [e for e in self.entries.values() if e.place == place and self._visible(e) and e not in limbo]

    def _next(self, ready: list[Entry]) -> list[Entry]:
        """What may come first: the oldest of the highest priority, or any replayed one of it.

        Or one that was changed, before others of the call that it was sent with.
        """
        highest = max((entry.sent.priority for entry in ready), default=0)
        among = sorted((entry for entry in ready if entry.sent.priority == highest), key=lambda entry: entry.id)
        copied, own = [e for e in among if e.copied], [e for e in among if not e.copied]
        return copied + own[:1] + [e for e in own[1:] if e.changed and _call_of(e) == _call_of(own[0])]

    def _take(self, entry: Entry, message: Claimed, lease: float) -> None:
        recovered, alone = entry.token is not None, self._alone(entry)
        agree(message.token not in self.tokens, "claim: a fresh token, not", message.token)
        self.tokens.add(message.token)
        entry.expired_once = entry.expired_once or recovered
        if entry.place == "live":
            entry.attempts += 1
            agree(message.attempt == entry.attempts, "claim: attempt", entry.attempts, "not", message.attempt)
            agree(message.max_attempts == self._most(entry), "claim: max_attempts", message.max_attempts)
            agree(message.alone == alone, "claim: alone should be", alone)
            agree(message.recovered == recovered, "claim: recovered should be", recovered)
        else:
            entry.tries += 1
        entry.token, entry.until, entry.settled_by = message.token, self.now + lease, None
        agree(abs(message.expires_at - entry.until) < 0.01, "claim: expires at", entry.until, "not", message.expires_at)
        self._same(entry, message)

    def extend(self, id: str, token: str, seconds: float, answer: float | None) -> None:
        """The new end, never earlier than the old; None for everybody but the holder."""
        entry = self.entries.get(id)
        if entry is None or entry.token != token:
            agree(answer is None, "extend: a stale token got", answer)
            return
        if entry.until <= self.now and answer is None:
            return
        end = max(entry.until, self.now + seconds)
        agree(answer is not None and abs(answer - end) < 0.01, "extend: expected", end, "got", answer)
        entry.until = end

    def settle(self, settlement: Settlement, answer: Answer, *, dead: bool = False) -> None:
        """ok for the holder and for a repeat; lost, without effect, for everybody else."""
        entry = self.entries.get(settlement.id)
        if entry is None:
            agree(answer == "unknown", "settle: nobody knows", settlement.id, "but got", answer)
            return
        if settlement.token in entry.used:
            same = entry.place != "gone" and entry.used[settlement.token] == settlement.action
            agree(answer == "ok" or not same or entry.settled_by != settlement.token, "settle: a repeat got", answer)
            return
        if entry.token != settlement.token:
            allowed = ("lost", "unknown") if None in self.statuses(entry.id) else ("lost",)
            agree(answer in allowed, "settle: a stale token got", answer)
            return
        if entry.until <= self.now and answer in ("lost", "unknown" if None in self.statuses(entry.id) else "lost"):
            return
        agree(answer == "ok", "settle: the holder got", answer)
        self._settle(entry, settlement, dead)

    def _settle(self, entry: Entry, settlement: Settlement, dead: bool) -> None:
        entry.used[settlement.token] = settlement.action
        entry.token, entry.due = None, self.now + settlement.delay
        if settlement.action == "complete":
            entry.result, entry.error = settlement.result, None
            keep = self.options.archive if settlement.keep is None else settlement.keep
            self._end(entry, "completed", keep=keep)
        elif settlement.action == "release":
            entry.names = ("delayed", "retry")
            entry.attempts -= 0 if dead else 1
        elif dead:
            entry.error, entry.names = settlement.error or entry.error, ("retry",)
        elif settlement.action == "dead" or entry.attempts >= self._most(entry):
            self._bury(entry, settlement.error)
        else:
            entry.error, entry.names = settlement.error, ("retry",)
        entry.settled_by = settlement.token

    def _end(self, entry: Entry, status: str, *, keep: bool) -> None:
        entry.place, entry.ended, entry.token, entry.settled_by = "archive" if keep else "gone", status, None, None
        self.completed += status == "completed"
        self.failed += status == "failed"

    def _bury(self, entry: Entry, reason: str | None) -> None:
        entry.error = reason
        if self.options.dead_letter is False:
            self._end(entry, "failed", keep=self.options.archive)
            return
        entry.place, entry.ended, entry.token, entry.due = "dead", "dead", None, self.now

    def change(self, id: str, change: Change, answer: bool | None) -> None:
        """True: it waits as it was changed; False: it is held or over; None: MessageNotFound."""
        entry = self.entries.get(id)
        if entry is None or entry.place == "gone":
            agree(answer is None, "change: nobody knows", id, "but got", answer)
            return
        if entry in self._limbo():
            agree(answer is (None if None in self.statuses(id) else False) or answer is False, "change: got", answer)
            return
        waiting = entry.place == "live" and not self._held(entry)
        agree(answer is waiting, "change: expected", waiting, "got", answer)
        if not waiting:
            return
        entry.expired_once, entry.token, entry.settled_by = entry.expired_once or entry.token is not None, None, None
        entry.changed = True
        if change.at is not None or change.delay is not None:
            entry.due = change.at if change.at is not None else self.now + (change.delay or 0.0)
            entry.names = ("retry",) if entry.attempts else ("delayed",)
        priority = entry.sent.priority if change.priority is None else change.priority
        entry.sent = msgspec.structs.replace(entry.sent, priority=priority)
        if change.payload is not None:
            said = {"payload": change.payload, "content_type": change.content_type}
            entry.sent = msgspec.structs.replace(entry.sent, **said)

    def take_back(self, ids: Sequence[str], answer: int) -> None:
        """Leases end as if they had expired; their tokens are good for nothing any more."""
        held = [e for e in self.entries.values() if e.id in ids and e.place == "live" and self._held(e)]
        agree(answer == len(held), "take back: expected", len(held), "got", answer)
        for entry in held:
            entry.token, entry.until, entry.settled_by = _NOBODYS, self.now, None

    def cancel(self, id: str, answer: bool | None, *, running: bool = False) -> None:
        """True: it ended as failed; False: it is held or over; None: MessageNotFound. `running`: held ones too."""
        entry = self.entries.get(id)
        if entry is None or entry.place == "gone":
            agree(answer is None, "cancel: nobody knows", id, "but got", answer)
            return
        waiting = entry.place == "live" and (running or not self._held(entry))
        if entry in self._limbo() and answer is (None if None in self.statuses(id) else False):
            self._bury(entry, "lease expired")
            return
        agree(answer is waiting, "cancel: expected", waiting, "got", answer)
        if waiting:
            entry.error = "cancelled"
            self._end(entry, "failed", keep=self.options.archive)

    def purge(self, answer: int) -> None:
        """What is not held goes; dead and archived messages stay."""
        limbo = self._limbo()
        sure = [e for e in self.entries.values() if e.place == "live" and not self._held(e) and e not in limbo]
        agree(answer in (len(sure), len(sure) + len(limbo)), "purge: expected", len(sure), "got", answer)
        for entry in sure + limbo * (answer > len(sure)):
            entry.place, entry.token = "gone", None

    def replay(self, view: View, ids: Iterable[str], answer: int, copies: dict[str, str]) -> None:
        """`copies` says which new id the store gave to each old one. Held dead letters must not be asked for."""
        known = [self.entries[id] for id in dict.fromkeys(ids) if id in self.entries]
        self._found_dead(view, [entry for entry in known if entry.id in copies])
        fresh = [entry for entry in known if entry.place == view and entry.id not in self.copied]
        agree(answer == len(fresh), "replay: expected", len(fresh), "got", answer)
        for entry in fresh:
            agree(entry.id in copies and copies[entry.id] not in self.entries, "replay: no copy of", entry.id)
            self.copied.add(entry.id)
            headers = dict(entry.sent.headers or {}) | {"replayed_from": entry.id}
            own = msgspec.structs.replace(entry.sent, headers=headers, delay=0.0, at=None, dedup_key=None)
            self.entries[copies[entry.id]] = Entry(copies[entry.id], own, self.now, copied=True)
            if view == "dead":
                entry.place = "gone"

    def discard(self, view: View, ids: Iterable[str] | None, answer: int) -> None:
        """These of `dead` or `archive`, or all of it. Held dead letters must not be asked for."""
        chosen = [entry for entry in self.entries.values() if ids is None or entry.id in set(ids)]
        if answer > sum(entry.place == view for entry in chosen):
            self._found_dead(view, chosen)
        gone = [entry for entry in chosen if entry.place == view]
        agree(answer == len(gone), "discard: expected", len(gone), "got", answer)
        for entry in gone:
            entry.place = "gone"

    def get(self, id: str, answer: Stored | None) -> None:
        """Everything that is known of one message."""
        allowed = self.statuses(id)
        agree((answer and answer.status) in allowed, "get:", id, "expected", allowed, "got", answer)
        if answer is None:
            return
        entry = self.entries[id]
        tries = entry.attempts + entry.tries * (answer.status == "completed")
        agree(answer.id == id and entry.attempts <= answer.attempts <= tries, "get: attempts", entry, "got", answer)
        self._same(entry, answer)
        agree(answer.worker == entry.worker, "get: held by", entry.worker, "not", answer.worker)
        if answer.status in ("completed", "failed", "dead") and entry.ended:
            agree(answer.finished_at is not None, "get: when did it end?", answer)
            error = answer.error == entry.error or entry.tries > 0
            agree(answer.result == entry.result and error, "get: outcome", entry, "got", answer)

    def statuses(self, id: str) -> set[str | None]:
        """What a right store may call this message now."""
        entry = self.entries.get(id)
        if entry is None or entry.place == "gone":
            return {None}
        if entry.place in ("dead", "archive"):
            return {entry.ended}
        if entry in self._limbo():
            kept = "failed" if self.options.archive else None
            return {"pending", "dead" if self.options.dead_letter else kept}
        if self._held(entry):
            return {"processing"}
        return {"pending"} if self._visible(entry) else set(entry.names)

    def scan(self, view: View, answer: Sequence[Stored]) -> None:
        """All of a view, in id order; messages whose last lease is over may be in two places."""
        limbo = {entry.id for entry in self._limbo()}
        names = {"ready": "pending", "archive": "completed failed"}.get(view, view).split()
        fixed = {id for id in self.entries if id not in limbo and self.statuses(id) & set(names)}
        free = {id for id in fixed if len(self.statuses(id)) > 1} | limbo
        got = [stored.id for stored in answer]
        agree(got == sorted(set(got)), "scan: id order, each once:", got)
        agree(fixed - free <= set(got) <= fixed | free, "scan:", view, "expected", sorted(fixed), "got", got)

    def upcoming(self, view: View, answer: Sequence[Stored]) -> None:
        """All of `delayed` or `retry`, by due time."""
        self.scan(view, sorted(answer, key=lambda stored: stored.id))
        instants = [stored.visible_at or 0.0 for stored in answer]
        agree(instants == sorted(instants), "upcoming: by due time:", answer)
        for stored in answer:
            due = self.entries[stored.id].due
            agree(abs((stored.visible_at or 0.0) - due) < 0.01, "upcoming: due", due, "got", stored)

    def peek(self, answer: Sequence[Stored]) -> None:
        """All that claims would give, in their order."""
        ready = self._ready("live")
        for stored in answer:
            turn = {entry.id for entry in self._next(ready)}
            agree(stored.id in turn and stored.status == "pending", "peek: out of turn", stored, "next were", turn)
            ready.remove(self.entries[stored.id])
        agree(not ready, "peek: left", [entry.id for entry in ready])

    def stats(self, answer: Stats) -> None:
        """Counts agree with what is there."""
        kept = [entry for entry in self.entries.values() if entry.place != "gone"]
        agree(answer.total == len(kept) or bool(self._limbo()), "stats: total", len(kept), "got", answer)
        parts = answer.pending + answer.delayed + answer.processing + answer.retry + answer.dead + answer.archived
        agree(answer.total == parts, "stats: the parts are not the total", answer)
        agree(answer.completed == self.completed, "stats: completed", self.completed, "got", answer)
        if any(len(self.statuses(entry.id)) > 1 for entry in kept):
            return
        names = [next(iter(self.statuses(entry.id))) for entry in kept]
        for name in (*LIVE, "dead"):
            agree(getattr(answer, name) == names.count(name), "stats:", name, names.count(name), "got", answer)
        archived = sum(entry.place == "archive" for entry in kept)
        agree(answer.archived == archived and answer.failed == self.failed, "stats:", archived, self.failed, answer)

    def _held(self, entry: Entry) -> bool:
        return entry.token is not None and entry.until > self.now

    def _visible(self, entry: Entry) -> bool:
        return not self._held(entry) and (entry.token is not None or entry.due <= self.now)

    def _most(self, entry: Entry) -> int:
        return self.options.max_attempts if entry.sent.max_attempts is None else entry.sent.max_attempts

    def _alone(self, entry: Entry) -> bool:
        expired = entry.expired_once or entry.token is not None
        return entry.place == "live" and expired and entry.attempts + 1 == self._most(entry)

    def _limbo(self) -> list[Entry]:
        """Live messages whose lease is over and that may not run again."""
        over = [e for e in self.entries.values() if e.place == "live" and e.token and not self._held(e)]
        return [e for e in over if e.attempts >= self._most(e) or isinstance(self.options.retry, NoRetry)]

    def _found_dead(self, view: View, entries: list[Entry]) -> None:
        """The store counts these as dead already, though no claim has told so."""
        for entry in entries:
            if entry in self._limbo() and view == ("archive" if self.options.dead_letter is False else "dead"):
                self._bury(entry, "lease expired")

    def _same(self, entry: Entry, answer: Claimed | Stored) -> None:
        sent = entry.sent
        agree(answer.payload == sent.payload and answer.content_type == sent.content_type, "payload of", answer)
        agree((answer.headers or {}) == (sent.headers or {}), "headers: expected", sent.headers, "got", answer)
        agree(answer.priority == sent.priority, "priority: expected", sent.priority, "got", answer)
