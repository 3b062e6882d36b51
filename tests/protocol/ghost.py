"""The invariants. The ghost sees every write that the bucket applies and every answer that a client gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from .head import DROPPED, Purge, Rewrite, State
from .keys import IDENTITY, Id, Key, Log, Row
from .rules import LEASE, E, R

if TYPE_CHECKING:
    from .bucket import Bucket
    from .head import Head, Settle

BLOCKS = ("inbox", "later", "parts", "staged")


class Violation(Exception):
    """A schedule that breaks a promise."""


def broken(promise: str, *about: object) -> NoReturn:
    raise Violation(f"{promise}: {' '.join(map(str, about))}")


class Sent:
    """What a producer attempted, and what it was answered."""

    def __init__(self, log: Log, value: str, began: int, call: int, sender: Any) -> None:
        self.log = log
        self.value = value
        self.began = began
        self.call = call
        self.sender = sender  # (producer, priority, number): for the order
        self.answer = ""
        self.answered = 0


class Ghost:
    def __init__(self, most: int, *, calm: bool) -> None:
        self.bucket: Bucket
        self.calm = calm  # nothing fails: the order of each producer holds
        self.most = most
        self.sent: dict[Id, Sent] = {}
        self.once: dict[tuple[int, str], dict[Id, None]] = {}  # ids by (incarnation, dedup key)
        self.renamed: dict[Id, Id] = {}
        self.contents: dict[Key, Any] = {}
        self.filed: dict[Id, Key] = {}
        self.moved: dict[Id, int] = {}
        self.absorbed: dict[Key, None] = {}
        self.status: dict[Id, str] = {}
        self.claims: dict[tuple[bool, Id], int] = {}
        self.leases: dict[tuple[Key, int, Any], int] = {}  # with the time from which they count
        self.settles: dict[tuple[Key, int, Any], str] = {}
        self.denied: dict[tuple[Key, int, Any], None] = {}
        self.ended: dict[Log, int] = {}
        self.purge_calls: list[dict[str, Any]] = []
        self.doomed: dict[Id, None] = {}
        self.closed: dict[int, None] = {}  # incarnations with a closing mark
        self.deleted_at: dict[int, int] = {}  # and those whose delete was answered
        self.reused: dict[int, int] = {}
        self.first_claims: dict[Any, int] = {}
        self.touched: dict[Id, None] = {}  # messages of blocks whose date was changed
        self.brought_back: dict[Id, None] = {}  # from where they were set aside
        self._calls = 0

    # What producers do and are told.

    def sends(self, key: Key, values: list[str], sender: Any = None) -> list[Id]:
        self._calls += 1
        ids: list[Id] = [(key.birth, key.unique, place) for place in range(len(values))]
        for id, value in zip(ids, values, strict=True):
            self.sent[id] = Sent(key.log, value, self.bucket.now, self._calls, sender)
        return ids

    def sends_again(self, rows: tuple[Row, ...], again: tuple[Row, ...]) -> None:
        """Under other ids: what P1 forbids. The last ones are those that are answered."""
        for old, new in zip(rows, again, strict=True):
            self.sent[new.id] = self.sent[old.id]
            self.sent[old.id] = Sent(self.sent[new.id].log, old.value, self.bucket.now, -1, None)
            self.renamed[old.id] = new.id

    def sends_once(
        self, key: Key, name: str, ids: list[Id] | None, values: list[str], call: Id | None = None
    ) -> list[Id]:
        if ids is None:
            ids = self.sends(key, values)
        else:
            self._calls += 1
            for id, value in zip(ids, values, strict=True):
                self.sent.setdefault(id, Sent(key.log, value, self.bucket.now, self._calls, None))
                self.doomed.pop(id, None)  # a replay after a purge adds it anew
        for place, id in enumerate(ids):
            if call is not None:
                self.sent[id].began = self.sent[call].began
            self.once.setdefault((key.log[0], f"{name}/{place}"), {})[id] = None
        return ids

    def answers(self, ids: list[Id], answer: str) -> None:
        for id in ids:
            while id in self.renamed:
                id = self.renamed[id]
            sent = self.sent[id]
            sent.answer = sent.answer if sent.answer == "stored" else answer
            sent.answered = self.bucket.now
            if answer == "stored" and id[0] != "replay" and sent.began > self.deleted_at.get(sent.log[0], sent.began):
                broken("an append begun after the queue was deleted is not acknowledged", id)

    # What clients are told of the head.

    def claimed(self, log: Log, places: list[tuple[Key, int]], token: Any) -> None:
        for key, place in places:
            if (key, place, token) not in self.leases:
                broken("answers are true: a claim was answered and never applied", key, place)

    def settled(self, log: Log, intent: Settle, result: Any) -> None:
        name = intent.key, intent.place, intent.token
        if result is True and name not in self.settles:
            broken("answers are true: a settle was answered and never applied", name)
        if result is False:
            if name in self.settles:
                broken("answers are true: lease lost was answered, and the settle was applied", name)
            self.denied[name] = None

    def purges(self, log: Log, began: int) -> dict[str, Any]:
        call = {"log": log, "began": began, "applied": None}
        self.purge_calls.append(call)
        return call

    def purged_by_hand(self, call: dict[str, Any]) -> None:
        call["applied"] = self.bucket.now

    def deletes(self, incarnation: int) -> None:
        self.deleted_at.setdefault(incarnation, self.bucket.now)

    def creates(self, incarnation: int) -> None:
        if incarnation in self.deleted_at:
            self.reused[incarnation] = self.bucket.now

    # What the bucket applies.

    def wrote(self, key: Key, data: Any) -> None:
        if key.folder in ("archive", *BLOCKS) and self.contents.setdefault(key, data) != data:
            broken("one name never has two contents", key)

    def created(self, key: Key, data: Any) -> None:
        if key.folder == "head":
            self.ended[key.log] = 0
        for row in data if key.folder == "archive" else ():
            if row.id not in self.sent or row.value != self.sent[row.id].value:
                broken("a file holds what was sent", key, row)
            if self.filed.get(row.id, key) != key:  # the same file again: a removed one, re-created by a late flusher
                broken("no id in two files", row.id, self.filed[row.id], key)
            self.filed[row.id] = key

    def deleted(self, key: Key) -> None:
        head = self.bucket.head(key.log)
        if key.folder not in BLOCKS or head is None or key.log[0] in self.closed:
            return
        if any(state.kind != "dropped" for state in head["blocks"].get(key, ())):
            broken("a block in the head has its object", key)

    def configured(self, old: Any, new: Any) -> None:
        if old[0] is not None and new[0] is None:
            self.closed[old[0]] = None

    def swapped(self, log: Log, old: Head, new: Head, why: Any) -> None:
        intents, _ = why
        for key, states in new["blocks"].items():
            before = old["blocks"].get(key)
            if before is None:
                self._absorbed(key)
                before = (State("new", key.attempts),) * len(states)
            if before is not states:
                self._block_changed(key, before, states, why)
        for key, states in old["blocks"].items():
            if key not in new["blocks"]:
                self._block_changed(key, states, (DROPPED,) * len(states), why)
        if new["ended"] != self.ended.get(log, 0):
            broken("counters are the settled messages", new["ended"], self.ended.get(log, 0))
        for intent in intents:
            if type(intent) is Rewrite and intent.new in new["blocks"] and intent.new not in old["blocks"]:
                self.status[self.id(intent.new, 0)] = "new"
            if type(intent) is Purge and new["purges"] > old["purges"]:
                self._purge_applied(log, intent.call)

    def _block_changed(self, key: Key, before: tuple[State, ...], after: tuple[State, ...], why: Any) -> None:
        for place, (a, b) in enumerate(zip(before, after, strict=True)):
            if a.kind != b.kind or a != b:
                self._changed(key, place, a, b, *why)

    def _absorbed(self, key: Key) -> None:
        if key in self.absorbed:
            broken("a block is absorbed at most once", key)
        if key not in self.contents or (key not in self.bucket.objects and key.log[0] not in self.closed):
            broken("an absorbed block has its object", key)
        self.absorbed[key] = None

    def _changed(self, key: Key, place: int, a: State, b: State, intents: Any, since: int) -> None:
        id = self.id(key, place)
        step = a.kind, b.kind
        name = key, place, a.token
        if a.kind == "leased" and (step != ("leased", "leased") or a.token != b.token):
            asked = [each for each in intents if getattr(each, "action", "") and each[:3] == name]
            if asked:
                self._settle_applied(name, asked[0].action, id, key)
            elif since < self.leases[name] + LEASE:
                broken("a live lease is never stolen", name, b)
        if b.kind == "leased" and a.token != b.token:
            self._claim_applied(key, place, id, b, since)
        elif step == ("leased", "leased"):
            self.leases[name] = max(self.leases[name], since)
        elif step not in _STEPS:
            broken("a message goes its way", id, a, b)
        if b.kind == "settled":
            self.ended[key.log] = self.ended.get(key.log, 0) + 1
        self.status[id] = "spilled" if a.kind == "frozen" and a.outcome == "retry" else b.kind

    def _settle_applied(self, name: Any, action: str, id: Id, key: Key) -> None:
        if name in self.denied:
            broken("answers are true: lease lost was answered, and the settle was applied later", name)
        self.settles[name] = action
        if action == "release":
            self.claims[key.log[1] == "dead", id] -= 1
        if action == "moved":
            self.moved[id] = self.bucket.now
            again = ("again", *id)
            self.sent[again] = Sent((key.log[0], "s0"), self.sent[id].value, self.bucket.now, -1, None)
            self.sent[again].answer = "stored"
            self.sent[again].answered = self.bucket.now

    def _claim_applied(self, key: Key, place: int, id: Id, state: State, since: int) -> None:
        self.leases[key, place, state.token] = since
        dead = key.log[1] == "dead"
        self.claims[dead, id] = count = self.claims.get((dead, id), 0) + 1
        if state.attempts != count or (count > self.most and not dead):
            broken("attempts are claims minus releases, and not too many", id, state.attempts, count)
        if id in self.doomed:
            broken("what was purged does not come back", id)
        if id in self.filed or id in self.moved:
            broken("what is finished does not come back", id)
        if key not in self.bucket.objects and key.log[0] not in self.closed:
            broken("a claimed message has its payload", id)
        sent = self.sent.get(id) or broken("nothing unexpected", id)
        if sent.answer == "refused":
            broken("answers are true: refused, and delivered", id)
        if key.log[0] in self.reused and sent.began <= self.deleted_at[key.log[0]]:
            broken("a queue made anew inherits nothing", id)
        if self.calm and sent.sender and id not in self.status and id not in self.brought_back:
            *who, number = sent.sender
            if number < self.first_claims.get(tuple(who), 0):
                broken("the order of a producer holds when nothing fails", id, sent.value)
            self.first_claims[tuple(who)] = number

    def _purge_applied(self, log: Log, call: dict[str, Any]) -> None:
        """What was acknowledged well before the purge and is not held must not be delivered any more."""
        call["applied"] = self.bucket.now
        for id, sent in self.sent.items():
            old = sent.answer == "stored" and sent.answered < call["began"] - 2 * E
            if (
                old
                and sent.log == log
                and id[0] != "again"
                and self.status.get(id, "new") in ("new", "retry", "spilled")
            ):
                self.doomed[id] = None
        frozen = (self.bucket.head(log) or {}).get("frozen")
        for key, place, state in frozen.rows if frozen else ():
            if state.outcome == "retry":
                self.doomed[self.id(key, place)] = None

    # Blocks with new dates.

    def touches(self, key: Key) -> None:
        for each in [key, *(key.part(number) for number in range(key.parts))]:
            self.touched.update(dict.fromkeys(row.id for row in self.contents.get(each, ())))

    def brings_back(self, key: Key, ids: list[Id], *, by_hand: bool) -> None:
        """What was acknowledged and not touched does not need anybody's hand, in a copy either. What was purged may."""
        for id in ids:
            sent = self.sent[id]
            if by_hand and sent.answer == "stored" and id not in self.touched and not self._excused(sent):
                broken("what was acknowledged is not set aside", key, id)
            self.brought_back[id] = None
            self.claims[key.log[1] == "dead", id] = key.attempts

    def is_there(self, id: Id) -> bool:
        """Whether there is such a message, in whatever state. That the look itself is exact is not modelled."""
        if id in self.filed or id in self.moved:
            return True
        places = [
            (key, place)
            for key, rows in self.contents.items()
            if key.folder in BLOCKS and key in self.bucket.objects
            for place, row in enumerate(rows)
            if row.id == id
        ]
        return any(self._is_alive(key, place) for key, place in places)

    def _is_alive(self, key: Key, place: int) -> bool:
        head = self.bucket.head(key.log)
        if head is not None and key in head["blocks"]:
            return bool(head["blocks"][key][place].kind != "dropped")
        if key.folder == "staged":
            return False
        if key.folder == "parts":
            key = key.manifest
        known = head is not None and (key in head["graveyard"] or key in head["aside"])
        if known or key not in self.bucket.objects:
            return False
        created_at, epoch = self.bucket.objects[key].created_at, self.bucket.objects[IDENTITY].data[1]
        return created_at - key.birth <= R or (key.birth < epoch and created_at <= epoch)

    def id(self, key: Key, place: int) -> Id:
        return self.contents[key][place].id

    def lost_row(self, key: Key, place: int) -> Row:
        return Row(self.id(key, place), None)

    # At the end, when everything was drained.

    def finish(self) -> None:
        values: dict[str, Id] = {}
        calls: dict[int, set[bool]] = {}
        for id, sent in self.sent.items():
            there = id in self.filed or id in self.moved
            # What is brought back may have been sent again under another id meanwhile, as with dedup keys.
            once = id[0] not in ("again", "replay") and id not in self.brought_back
            if there and once and values.setdefault(sent.value, id) != id:
                broken("what was sent once is there once", sent.value)
            if not self._excused(sent):
                self._judge(id, sent, there=there)
                calls.setdefault(sent.call, set()).add(there)
        calls.pop(-1, None)  # not calls of a producer
        if any(len(each) > 1 for each in calls.values()):
            broken("a call is stored whole or not at all")
        for (incarnation, name), ids in self.once.items():
            if sum((id in self.filed or id in self.moved) and id not in self.brought_back for id in ids) > 1:
                broken("a dedup key adds one message", incarnation, name)

    def _judge(self, id: Id, sent: Sent, *, there: bool) -> None:
        if sent.answer == "stored" and not there:
            broken("what was acknowledged is there in the end", id, sent.value)
        if sent.answer == "refused" and there:
            broken("answers are true: refused, and there", id)

    def _excused(self, sent: Sent) -> bool:
        """Purged, or gone with its queue, after the append began."""
        if sent.log[0] in self.closed:
            return True
        return any(
            call["log"] == sent.log and call["applied"] is not None and call["applied"] >= sent.began
            for call in self.purge_calls
        )


_STEPS = {
    ("new", "dropped"),
    ("retry", "dropped"),
    ("leased", "dropped"),
    ("leased", "retry"),
    ("leased", "settled"),
    ("settled", "frozen"),
    ("retry", "frozen"),
    ("frozen", "dropped"),
}
