"""The contract's promises, judged from the history of calls and from what is there at the end.

A call without an answer, or with an error, may have taken effect: then only what is wrong either way counts.
"""

from __future__ import annotations

import traceback
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import msgspec

from holdfast.errors import Fenced, MessageNotFound, QueueNotFound, Unavailable, UnknownOutcome
from holdfast.stores.records import Claimed, Stats, Stored

from .baton import EPOCH
from .history import Call, History
from .plan import Plan
from .workload import MOVED, QUEUE

_MOVED = ">"  # at the end of a uid
EXPECTED = (Unavailable, UnknownOutcome)  # while something fails


class Delivery(msgspec.Struct):
    call: Call
    claimed: Claimed
    queue: str
    uid: str
    stamp: float  # when the claim was carried out, as the store's clock said it
    safe_until: float  # until then nobody else may have it


class Rest(msgspec.Struct):
    """What the drain found."""

    began: float = 0.0
    drained: list[tuple[Call, Claimed]] = []
    archive: list[Stored] = []
    dead: list[Stored] = []
    moved: list[Stored] = []  # records of the queue to which dead letters went
    stats: Stats | None = None


def uid_of(payload: bytes, queue: str = QUEUE) -> str:
    """What the message is; moved to another queue, it is another one."""
    uid = payload.partition(b"|")[0].decode()
    return uid + _MOVED if queue == MOVED else uid


def _in_time(each: Delivery) -> tuple[float, int, float]:
    return round(each.stamp, 6), each.claimed.attempt, each.call.began


def _taken(each: Delivery) -> float:
    """By the true clock: not before it was asked for."""
    return max(each.call.began, each.stamp)


class Judge:
    def __init__(self, plan: Plan, history: History, rest: Rest, slack: float) -> None:
        self.plan = plan
        self.calls = history.calls
        self.rest = rest
        self.slack = slack  # seconds by which clocks may differ
        self.bad: list[str] = []
        self.sent: dict[str, Call] = {}
        self.answered: dict[str, tuple[Call, str]] = {}  # by uid: the append that was acknowledged, and the id
        self.by_id: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
        self.settles: dict[tuple[str, str, str], list[tuple[Call, Any, str | None]]] = defaultdict(list)
        self.extends: dict[tuple[str, str], list[Call]] = defaultdict(list)
        self.purges: list[Call] = []
        self.cancelled: set[str] = set()  # ids, for certain or not
        self.unkept: set[str] = set()  # uids of messages that may have been completed without a record
        self.repeated: set[str] = set()  # uids whose unclear append was repeated
        self.moved: set[str] = set()  # uids that were delivered from the queue of dead letters
        self.kinds = {call.kind for call in self.calls}
        self._read()

    def breach(self, text: str) -> None:
        self.bad.append(text)

    def _read(self) -> None:
        readers = {
            "append": self._sent,
            "claim": self._claimed,
            "settle": self._settled,
            "extend": self._extended,
            "purge": self.purges.append,
            "cancel": self._cancelled,
        }
        for call in self.calls:
            if call.kind in readers:
                readers[call.kind](call)
        for (queue, id, _), some in self.settles.items():
            if any(each[1].action == "complete" and self._leaves_none(each) for each in some):
                self.unkept.update(each.uid for each in self.by_id.get((queue, id), ()))

    def _claimed(self, call: Call) -> None:
        queue, lease = call.args["queue"], call.args["lease"]
        for claimed in call.answer.messages if call.is_ok else ():
            stamp = claimed.expires_at - lease - EPOCH - (call.wall if self.plan.policy != "bucket" else 0.0)
            delivery = Delivery(call, claimed, queue, uid_of(claimed.payload, queue), stamp, call.began + lease)
            self.by_id[queue, claimed.id].append(delivery)
            if queue == MOVED:
                self.moved.add(delivery.uid)

    def _settled(self, call: Call) -> None:
        answers = call.answer if call.is_ok else [None] * len(call.args["settlements"])
        for each, answer in zip(call.args["settlements"], answers, strict=True):
            self.settles[call.args["queue"], each.id, each.token].append((call, each, answer))

    def _cancelled(self, call: Call) -> None:
        if call.is_unclear or call.answer:
            self.cancelled.add(call.args["id"])

    def _extended(self, call: Call) -> None:
        if call.is_ok and call.answer[0]:
            self.extends[call.args["leases"][0]].append(call)

    def _sent(self, call: Call) -> None:
        for name in call.args["names"]:
            self.sent.setdefault(name, call)
            if call.args.get("again"):
                self.repeated.add(name)
        if not call.is_ok:
            return
        if len(call.answer) != len(call.args["names"]):
            self.breach(f"ids do not match messages: {call}")
        for name, id in zip(call.args["names"], call.answer, strict=False):
            self.answered[name] = (call, id)

    def _had_two_lives(self, uid: str) -> bool:
        """Who repeats or recovers a message that has ended without a trace finds none, and adds it: the docs say so."""
        may_be_added = uid in self.repeated or "recover" in self.kinds
        is_without_trace = uid in self.unkept or bool(self.purges) or (not self.plan.archive and bool(self.cancelled))
        return may_be_added and is_without_trace

    def run(self) -> list[str]:
        self.errors()
        self.identities()
        self.deliveries()
        self.settlements()
        self.endings()
        self.order()
        self.dedup()
        self.told()
        return self.bad

    # Errors.

    def errors(self) -> None:
        for call in self.calls:
            if call.error is None:
                continue
            quiet = call.began >= self.rest.began > 0
            fine = EXPECTED if not quiet else ()
            if call.kind == "cancel":
                fine = (*fine, MessageNotFound)
            if self.plan.policy == "slatedb" and not quiet:
                fine = (*fine, Fenced)
            if type(call.error) not in fine and not (not quiet and isinstance(call.error, Unavailable)):
                where = "".join(traceback.format_exception(call.error)[-6:])
                self.breach(f"unexpected error{' in the quiet' if quiet else ''}: {call}\n{where}")
            if isinstance(call.error, QueueNotFound):
                self.breach(f"the queue is gone: {call}")

    # Who is who.

    def identities(self) -> None:
        ids: dict[str, str] = {}
        for (_, id), deliveries in self.by_id.items():
            for each in deliveries:
                if each.uid.removesuffix(_MOVED) not in self.sent:
                    self.breach(f"unexpected: {each.uid} was never sent")
                    continue
                if ids.setdefault(id, each.uid) != each.uid:
                    self.breach(f"one id for two messages: {id}")
                if each.queue != MOVED:
                    self._terms(each)
        if "replay" not in self.kinds:
            self._one_id_each()

    def _one_id_each(self) -> None:
        known: dict[str, str] = {}
        for name, (call, id) in self.answered.items():
            if "dedup_key" not in call.args["terms"]:
                known[name] = id
        for (_, id), deliveries in self.by_id.items():
            for each in deliveries:
                if known.setdefault(each.uid, id) != id:
                    self.breach(f"one message, two ids: {each.uid}")

    def _terms(self, each: Delivery) -> None:
        call = self.sent[each.uid]
        place = call.args["names"].index(each.uid)
        if each.claimed.priority != call.args["priorities"][place]:
            self.breach(f"the priority changed: {each.uid}")
        delay = call.args["terms"].get("delay", 0.0)
        ended = each.call.ended or 0.0
        mixed = len(set(call.args["priorities"])) > 1
        if not mixed and ended < call.began + delay - self.slack:
            self.breach(f"delivered before its delay: {each.uid} at {ended:.3f}, sent at {call.began:.3f}, {delay} s")

    # Deliveries of one message.

    def deliveries(self) -> None:
        for (queue, id), some in self.by_id.items():
            some.sort(key=_in_time)
            for before, after in pairwise(some):
                self._pair(queue, id, before, after)
            if queue == QUEUE:
                for each in some:
                    if not 1 <= each.claimed.attempt <= each.claimed.max_attempts:
                        self.breach(f"attempt {each.claimed.attempt} of {each.claimed.max_attempts}: {each.uid}")

    def _pair(self, queue: str, id: str, before: Delivery, after: Delivery) -> None:
        if self._had_two_lives(before.uid):
            return
        token = before.claimed.token
        if token == after.claimed.token:
            self.breach(f"one token twice: {before.uid}")
        gives_back = ("retry", "release") if queue == QUEUE else ("retry", "release", "dead")  # what is dead stays so
        gave_back = [
            settled
            for settled in self.settles[queue, id, token]
            if settled[1].action in gives_back
            and settled[0].began <= (after.call.ended or 0.0)
            and settled[2] != "lost"
        ]
        safe = before.safe_until
        for call in self.extends[id, token]:
            safe = max(safe, call.began + call.args["lease"])
        if not gave_back and _taken(after) < safe - self.slack:
            self.breach(
                f"stolen: {before.uid} was {before.call.by}'s until {safe:.3f}, "
                f"{after.call.by} had it at {_taken(after):.3f}"
            )
        released = [each for each in gave_back if each[1].action == "release"]
        if queue == QUEUE and after.claimed.attempt < before.claimed.attempt + 1 - len(released[:1]):
            self.breach(f"miscounted: {before.uid} attempt {before.claimed.attempt}, then {after.claimed.attempt}")
        unseen = sum(self._has_unseen(call) and call.began < _taken(after) for call in self.calls)
        if queue == QUEUE and after.claimed.attempt > before.claimed.attempt + 1 + unseen:
            self.breach(
                f"counted too often: {before.uid} attempt {before.claimed.attempt}, then {after.claimed.attempt}, "
                f"with {unseen} claims in doubt"
            )

    def _has_unseen(self, call: Call) -> bool:
        """Whether a claim may have counted an attempt that nobody saw: unclear, or answered after its leases' end."""
        if call.kind != "claim":
            return False
        is_too_late = call.ended is not None and call.ended - call.began > call.args["lease"] - self.slack
        return call.is_unclear or is_too_late

    # Settlements.

    def settlements(self) -> None:
        completed: Counter[str] = Counter()
        uids = {(queue, id): some[0].uid for (queue, id), some in self.by_id.items()}
        for (queue, id, token), some in self.settles.items():
            accepted = [each for each in some if each[2] == "ok"]
            if not accepted:
                continue
            call, settlement, _ = accepted[0]
            if settlement.action == "complete":
                completed[uids[queue, id]] += 1
            for other in self.by_id[queue, id]:
                if other.claimed.token == token:
                    continue
                mine = next((each for each in self.by_id[queue, id] if each.claimed.token == token), None)
                if mine is None:
                    continue
                first = min(each[0].began for each in some if each[2] != "lost")  # the answer may be to a repeat
                self._against(call, first, settlement, mine, other)
        for uid, count in completed.items():
            if count > 1 and not self._had_two_lives(uid):
                self.breach(f"completed twice: {uid}")

    def _against(self, call: Call, first: float, settlement: Any, mine: Delivery, other: Delivery) -> None:
        """An accepted settlement, and another delivery of the message."""
        if self._had_two_lives(mine.uid):
            return
        took = other.call.ended or 0.0
        if other.call.began > (mine.call.ended or 0.0) and took < first:
            self.breach(f"zombie: {mine.uid} was settled by {call.by}, but {other.call.by} had it since {took:.3f}")
        is_over = settlement.action == "complete" or (settlement.action == "dead" and mine.queue == QUEUE)
        if is_over and other.call.began > (call.ended or 0.0):
            self.breach(
                f"came back: {mine.uid} ended at {call.ended:.3f} ({settlement.action}), "
                f"{other.call.by} got it at {took:.3f}"
            )

    # The end.

    def endings(self) -> None:
        """Acknowledged: in exactly one record, or ended in a way that leaves none."""
        rest = self.rest
        if rest.stats is None:
            return
        records = Counter(uid_of(each.payload) for each in [*rest.archive, *rest.dead])
        for uid, count in records.items():
            if uid not in self.sent:
                self.breach(f"unexpected at the end: {uid}")
            if count > 1 and not self._had_two_lives(uid):
                self.breach(f"recorded {count} times: {uid}")
        for uid, (call, id) in self.answered.items():
            if not records[uid] and not self._may_leave_none(uid, id, call):
                self.breach(f"lost: {uid}, acknowledged at {call.ended:.3f} as {id}")
        if self.plan.moves:
            self._arrived()
        open_ones = {name: getattr(rest.stats, name) for name in ("pending", "delayed", "processing", "retry")}
        if any(open_ones.values()):
            self.breach(f"not drained: {open_ones}")
        self._counts(records)

    def _arrived(self) -> None:
        """What died was moved, exactly once."""
        records = Counter(uid_of(each.payload, MOVED) for each in self.rest.moved)
        for uid, count in records.items():
            if count > 1 and not self._had_two_lives(uid):
                self.breach(f"recorded {count} times: {uid}")
        for (queue, id, _), some in self.settles.items():
            died = any(each[1].action == "dead" and each[2] == "ok" for each in some)
            for each in self.by_id[queue, id][:1] if queue == QUEUE and died else ():
                uid = each.uid + _MOVED
                if not records[uid] and uid not in self.unkept:
                    self.breach(f"lost on its way to another queue: {uid}")

    def _counts(self, records: Counter[str]) -> None:
        stats = self.rest.stats
        assert stats is not None
        if stats.dead != len(self.rest.dead):
            self.breach(f"stats: {stats.dead} dead, {len(self.rest.dead)} listed")
        if stats.archived != len(self.rest.archive):
            self.breach(f"stats: {stats.archived} archived, {len(self.rest.archive)} listed")
        sure = {
            (queue, id)
            for (queue, id, _), some in self.settles.items()
            if queue == QUEUE and any(each[2] == "ok" and each[1].action == "complete" for each in some)
        }
        if stats.completed < len(sure):
            self.breach(f"stats: {stats.completed} completed, {len(sure)} settlements accepted")

    def _may_leave_none(self, uid: str, id: str, call: Call) -> bool:
        if "dedup_key" in call.args["terms"]:
            return True  # it stands for another
        if not self.plan.archive and (id in self.cancelled or uid + _MOVED in self.moved):
            return True
        return uid in self.unkept or any(each.is_unclear or (each.ended or 0.0) > call.began for each in self.purges)

    def _leaves_none(self, settled: tuple[Call, Any, str | None]) -> bool:
        """A completion that leaves no record, if it happened."""
        _, settlement, answer = settled
        return answer != "lost" and (settlement.keep is False or not self.plan.archive)

    # Order, in the quiet with one consumer.

    def order(self) -> None:
        if self.plan.shards > 1:
            return
        drained = [(call, each, uid_of(each.payload)) for call, each in self.rest.drained]
        for place, (call, each, uid) in enumerate(drained):
            for later, other, next_uid in drained[place + 1 :]:
                if uid not in self.sent or next_uid not in self.sent:
                    continue
                self._ordered(call, each, uid, other, next_uid, together=later is call)

    def _ordered(self, call: Call, each: Claimed, uid: str, other: Claimed, next_uid: str, *, together: bool) -> None:
        sent, after = self.sent[uid], self.sent[next_uid]
        made = self.answered.get(next_uid)
        is_first_life = made is not None and made[1] == other.id  # what was replayed came later
        there = is_first_life and after.ended is not None and after.ended < call.began
        if there and other.priority > each.priority:
            self.breach(f"priority: {uid} ({each.priority}) before {next_uid} ({other.priority}) in the quiet")
        plain = all(
            not one.args["terms"].get("delay")
            and "dedup_key" not in one.args["terms"]
            and one.is_ok
            and not one.args.get("again")
            for one in (sent, after)
        )
        same = sent.process == after.process and each.priority == other.priority
        if there and plain and same and "replay" not in self.kinds and (after.ended or 0.0) < sent.began:
            self.breach(f"order: {uid} before {next_uid} of the same producer in the quiet")

    # Dedup keys, looks.

    def dedup(self) -> None:
        """Within the window one key stands for one id (the window is longer than any simulation)."""
        ids: dict[str, set[str]] = defaultdict(set)
        for call in self.calls:
            if call.kind == "append" and call.is_ok and "dedup_key" in call.args["terms"]:
                ids[call.args["terms"]["dedup_key"]].update(call.answer)
        for key, some in ids.items():
            if len(some) > 1:
                self.breach(f"two ids for one dedup key: {key}")

    def told(self) -> None:
        """What `get` and `cancel` say fits what was answered before."""
        ended: dict[str, float] = {}
        for (queue, id, _), some in self.settles.items():
            for call, settlement, answer in some:
                if answer == "ok" and settlement.action == "complete" and queue == QUEUE:
                    ended[id] = min(ended.get(id, call.ended or 0.0), call.ended or 0.0)
        for call in self.calls:
            if call.kind == "get" and call.is_ok:
                self._got(call, ended)
            if call.kind == "cancel" and call.is_ok and call.answer:
                late = [each for each in self.by_id[QUEUE, call.args["id"]] if each.call.began > (call.ended or 0.0)]
                if late and not self._had_two_lives(late[0].uid):
                    self.breach(f"delivered after it was cancelled: {late[0].uid}")

    def _got(self, call: Call, ended: dict[str, float]) -> None:
        id, stored = call.args["ids"][0], call.answer[0]
        if id in ended and ended[id] < call.began and stored is not None and stored.status != "completed":
            self.breach(f"get says {stored.status} of {id}, which was completed at {ended[id]:.3f}")
        appended = [
            other
            for other in self.calls
            if other.kind == "append" and other.is_ok and id in other.answer and (other.ended or 0.0) < call.began
        ]
        uids = [name for name, (_, made) in self.answered.items() if made == id]
        is_shown = "replay" not in self.kinds and not self.plan.mix.rewrites  # what is set aside is not
        is_gone = stored is None and bool(appended) and is_shown
        if is_gone and not any(self._may_leave_none(uid, id, appended[0]) for uid in uids):
            self.breach(f"get knows nothing of {id}, acknowledged at {appended[0].ended:.3f}")
