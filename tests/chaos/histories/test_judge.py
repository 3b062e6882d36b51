"""A judge that never fails proves nothing: histories written by hand, one for every kind of breach, and good ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from chaos.histories.calls import LEFT, Answered, Asked, Call, Given, Hurt, Log, Sighting, Terms, read
from chaos.histories.judge import COUNTED_AS, judge, judged
from chaos.histories.quiet import COUNTS, Drained, Ending, Rest, write
from chaos.histories.rules.breach import KINDS, Breach

DAWN = 1000.0  # what the store's clock shows at second 0


class Tale:
    """A history of one queue, told call by call. Instants are seconds; leases last for ten."""

    def __init__(self, *, store: str = "file", dead_letter: bool = True, shards: int = 1) -> None:
        self.calls: list[Call] = []
        self.hurts: list[Hurt] = []
        self.rest = Rest()
        self.changes: dict[str, dict[str, int]] = {}
        self.store, self.dead_letter, self.shards = store, dead_letter, shards

    def call(self, op: str, at: float, *, by: str = "p0", took: float = 0.1, outcome: str = "ok", **more: Any) -> Tale:
        answer = Answered(call="", ended=at + took, outcome=outcome, **more.pop("answer", {}))
        call = Call(call=f"{by}.0#{len(self.calls)}", began=at, op=op, queue="q", answer=answer, **more)
        call.ended, call.outcome, call.why = answer.ended, answer.outcome, answer.why
        call.ids, call.given, call.seen, call.number = answer.ids, answer.given, answer.seen, answer.number
        self.calls.append(call)
        return self

    def sent(self, *ids: str, at: float = 0.0, uids: list[str] | None = None, by: str = "p0", **terms: Any) -> Tale:
        uids = uids or [f"u-{id}" for id in ids]
        return self.call("enqueue", at, by=by, uids=uids, terms=Terms(**terms), answer={"ids": list(ids)})

    def got(self, id: str, token: str, at: float, attempt: int = 1, *, by: str = "p1", lease: float = 10.0,
            claimed: float | None = None, **more: Any) -> Tale:  # fmt: skip
        given = given_of(id, token, attempt, DAWN + (at if claimed is None else claimed) + lease, **more)
        return self.call("dequeue", at, by=by, lease=lease, answer={"given": [given]})

    def did(self, op: str, id: str, token: str, at: float, **more: Any) -> Tale:
        if op == "complete":
            more.setdefault("result", f"by {token}")
        return self.call(op, at, by=more.pop("by", "p1"), id=id, token=token, **more)

    def asked(self, op: str, id: str, at: float, number: float | None = None, **more: Any) -> Tale:
        return self.call(op, at, id=id, answer={"number": number}, **more)

    def replayed(self, id: str, at: float, number: int = 1, view: str = "dead") -> Tale:
        return self.call("replay", at, wanted=[id], view=view, answer={"number": number})

    def owned(self, at: float, epoch: int, *, by: str = "p1", lease: float = 10.0) -> Tale:
        return self.call("own", at, by=by, lease=lease, answer={"generation": 1, "epoch": epoch})

    def batch(self, at: float, number: int, *given: Given, epoch: int = 1, by: str = "p1") -> Tale:
        """Claimed or found, and read."""
        name = {"generation": 1, "epoch": epoch}
        self.call(
            "claim batch", at, by=by, batch=number - 1, answer={"number": DAWN + at + 0.1, "batch": number}, **name
        )
        return self.call("read batch", at + 0.2, by=by, batch=number, answer={"given": list(given)}, **name)

    def drained(self, id: str, token: str, at: float, attempt: int = 1, **more: Any) -> Tale:
        given = given_of(id, token, attempt, DAWN + at + 600.0, **more)
        self.rest.drained.append(Drained(given, at, at + 0.1))
        return self.ends(id, "completed", attempts=attempt, result="drained", uid=given.uid)

    def ends(
        self, id: str, status: str = "completed", *, attempts: int = 1, uid: str | None = None, **more: Any
    ) -> Tale:
        uid = uid or f"u-{id}"
        found = Sighting(id=id, status=status, attempts=attempts, max_attempts=4, uid=uid, **more)
        self.rest.final[id] = found
        (self.rest.dead if status == "dead" else self.rest.archive).append(id)
        return self

    def counting(self, when: str, **counts: int) -> Tale:
        self.changes[when] = counts
        return self

    def breaches(self) -> list[Breach]:
        return judge(self.calls, self.hurts, self.ending()).breaches

    def ending(self) -> Ending:
        rest = self.rest
        rest.dead_count, rest.archive_count = len(rest.dead), len(rest.archive)
        drained = len(rest.drained)
        gone = sum(call.op == "complete" and call.keep is False and call.ok and not call.again for call in self.calls)
        states = Counter(each.status for each in rest.final.values())
        after = {"dead": len(rest.dead), "archived": len(rest.archive), "completed": states["completed"] + gone}
        before = after | {"archived": after["archived"] - drained}
        rest.before = counts(before | {"pending": drained}, self.changes.get("before", {}))
        rest.middle = counts(before | {"processing": drained}, self.changes.get("middle", {}))
        rest.after = counts(after, self.changes.get("after", {}))
        return Ending(
            store=self.store, scale=1.0, window=15.0, shards=self.shards, queues={"q": rest},
            dead_letter={"q": self.dead_letter},
        )  # fmt: skip


def counts(some: dict[str, int], changes: dict[str, int]) -> dict[str, int]:
    made = dict.fromkeys(COUNTS, 0) | some
    made["total"] = sum(made[name] for name in ("pending", "delayed", "processing", "retry", "dead", "archived"))
    return made | changes


def given_of(id: str, token: str, attempt: int = 1, expires: float = float("inf"), *, uid: str | None = None,
             priority: int = 0, max_attempts: int = 4, origin: str = "") -> Given:  # fmt: skip
    return Given(
        id=id, token=token, attempt=attempt, max_attempts=max_attempts, priority=priority, uid=uid or f"u-{id}",
        expires=expires, origin=origin,
    )  # fmt: skip


def simple() -> Tale:
    """Sent, claimed, completed."""
    return Tale().sent("a").got("a", "t1", 1.0).did("complete", "a", "t1", 2.0).ends("a", result="by t1")


def waiting() -> Tale:
    """Sent and drained."""
    return Tale().sent("a").drained("a", "t9", 100.0)


def dead() -> Tale:
    """Killed by hand."""
    return Tale().sent("a").got("a", "t1", 1.0).did("kill", "a", "t1", 2.0)


def copied() -> Tale:
    """A dead letter that was replayed; its copy is drained."""
    return dead().replayed("a", 5.0).drained("b", "t9", 100.0, uid="u-a", origin="a")


def left() -> Tale:
    """A batch that is gone when it is read."""
    tale = Tale().sent("a").owned(1.0, 1)
    claim = {"number": DAWN + 2.1, "batch": 1}
    tale.call("claim batch", 2.0, by="p1", generation=1, epoch=1, answer=claim)
    why = f"StoreError('the block x {LEFT}')"
    return tale.call("read batch", 3.0, by="p1", generation=1, epoch=1, batch=1, outcome="refused", answer={"why": why})


def settled_and_refused(shards: int) -> Tale:
    """The next claim settles in the first head, then a forced release comes before its second step."""
    tale = Tale(shards=shards).sent("a").owned(1.0, 1).batch(2.0, 1, given_of("a", "s1"))
    tale.call("claim batch", 5.0, by="p1", generation=1, epoch=1, batch=1, took=0.5, outcome="refused")
    return tale.call("release batches", 5.2, took=0.5).ends("a")


def streamed() -> Tale:
    """A batch of one, settled by the claim of the next."""
    tale = Tale().sent("a").owned(1.0, 1).batch(2.0, 1, given_of("a", "s1"))
    tale.call("settle batch", 4.0, by="p1", generation=1, epoch=1, batch=1)
    return tale.ends("a", "completed")


GOOD = {
    "simple": simple(),
    "waiting": waiting(),
    "a dead letter": dead().ends("a", "dead"),
    "nothing at all": Tale(),
    "out of attempts by expired leases": (
        Tale().sent("a").got("a", "t1", 1.0).got("a", "t2", 12.0, 2).got("a", "t3", 23.0, 3).got("a", "t4", 34.0, 4)
        .ends("a", "dead", attempts=4, error="its lease expired")
    ),
    "failed and tried again": (
        Tale().sent("a").got("a", "t1", 1.0).did("fail", "a", "t1", 2.0, delay=1.0)
        .got("a", "t2", 4.0, 2).did("complete", "a", "t2", 5.0).ends("a", result="by t2", attempts=2)
    ),
    "an expired lease, and a late holder that is refused": (
        Tale().sent("a").got("a", "t1", 1.0).got("a", "t2", 12.0, 2).did("complete", "a", "t1", 13.0, outcome="lost")
        .did("complete", "a", "t2", 14.0).ends("a", result="by t2", attempts=2)
    ),
    "an unheard completion": (
        Tale().sent("a").got("a", "t1", 1.0).did("complete", "a", "t1", 2.0, outcome="unknown")
        .ends("a", result="by t1")
    ),
    "cancelled": Tale().sent("a").asked("cancel", "a", 1.0, 1).ends("a", "failed", attempts=0, error="cancelled"),
    "replayed dead letter": copied(),
    "replayed from the archive": (
        simple().replayed("a", 5.0, view="archive").replayed("a", 6.0, 0, view="archive")
        .drained("b", "t9", 100.0, uid="u-a", origin="a")
    ),
    "purged": Tale().sent("a").call("purge", 1.0, answer={"number": 1}),
    "paused": simple().call("pause", 3.0).call("dequeue", 4.0, lease=10.0).call("resume", 5.0),
    "found again after a purge, since it was held": (
        Tale().sent("a").got("a", "t1", 1.0).call("purge", 2.0).did("complete", "a", "t1", 3.0)
        .ends("a", result="by t1")
    ),
    "a stream": streamed(),
    "a batch that another owner found": (
        Tale().sent("a").owned(1.0, 1).batch(2.0, 1, given_of("a", "s1")).owned(30.0, 2, by="p2")
        .batch(31.0, 1, given_of("a", "s1"), epoch=2, by="p2")
        .call("settle batch", 40.0, by="p2", generation=1, epoch=2, batch=1).ends("a")
    ),
    "a batch that was settled while somebody gave it back": (
        Tale().sent("a").owned(1.0, 1).batch(2.0, 1, given_of("a", "s1")).call("release batches", 5.0, took=0.5)
        .call("settle batch", 5.2, by="p1", generation=1, epoch=1, batch=1).ends("a")
    ),
    "a batch of several shards that was settled by a call which lost its ownership on the way": (
        settled_and_refused(shards=4)
    ),
    "a batch that was purged while it was read": left().call("purge", 2.5).drained("a", "t9", 100.0),
    "a batch that was given back": (
        Tale().sent("a").owned(1.0, 1).batch(2.0, 1, given_of("a", "s1")).call("release batches", 5.0)
        .drained("a", "t9", 100.0)
    ),
    "a dedup key whose message was purged": (
        Tale().sent("a", dedup_key="k").call("purge", 1.0).sent("a", at=10.0, uids=["u-a2"], dedup_key="k")
        .sent("b", at=16.0, dedup_key="k").drained("b", "t9", 100.0)
    ),
    "expired while it waited": (
        Tale().sent("a", expires=5.0).asked("cancel", "a", 6.0, 0).ends("a", "failed", attempts=0, error="expired")
    ),
    "completed by who had it when it expired": (
        Tale().sent("a", expires=5.0).got("a", "t1", 1.0).did("complete", "a", "t1", 8.0).ends("a", result="by t1")
    ),
    "given back when it had expired": (
        Tale().sent("a", expires=5.0).got("a", "t1", 1.0).did("release", "a", "t1", 6.0)
        .did("release", "a", "t1", 7.0, again=True, outcome="gone").ends("a", "failed", error="expired")
    ),
    "the same dedup key in the next window": (
        Tale().sent("a", dedup_key="k").sent("b", at=20.0, dedup_key="k").drained("a", "t8", 100.0)
        .drained("b", "t9", 101.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_valid(name: str) -> None:
    assert GOOD[name].breaches() == []


BAD: dict[str, Tale] = {
    "unexpected error": simple().call("get", 3.0, id="a", outcome="error", answer={"why": "ValueError()"}),
    "error in the quiet at the end": simple(),
    "ids do not match messages": Tale().sent("a", uids=["u-a", "u-b"]).drained("a", "t9", 100.0),
    "one id for two messages": waiting().sent("a", at=1.0, uids=["u-a2"]),
    "a message nobody sent": Tale().drained("a", "t9", 100.0),
    "one enqueue, two messages": waiting().drained("b", "t8", 101.0, uid="u-a"),
    "the value changed": simple().sent("b").got("a", "t1", 1.0, uid="u-b").drained("b", "t9", 100.0),
    "terms changed": Tale().sent("a", priority=7).drained("a", "t9", 100.0),
    "delivered before its delay": Tale().sent("a", delay=5.0).got("a", "t1", 1.0).did("complete", "a", "t1", 2.0),
    "delivered after it had expired": (
        Tale().sent("a", expires=5.0).got("a", "t1", 6.0).did("complete", "a", "t1", 7.0).ends("a", result="by t1")
    ),
    "expired before its time": (
        Tale().sent("a", expires=5.0).ends("a", "failed", attempts=0, error="expired")
        .asked("get", "a", 3.0, took=0.5)
    ),
    "dedup: two messages in one window": (
        Tale().sent("a", dedup_key="k").sent("b", at=5.0, dedup_key="k").drained("a", "t8", 100.0)
        .drained("b", "t9", 101.0)
    ),
    "two holders at once, by the store's clock": (
        Tale().sent("a").got("a", "t1", 1.0).got("a", "t2", 12.0, 2, claimed=9.0).did("complete", "a", "t2", 14.0)
    ),
    "two holders at once, by the machine's clock": (
        Tale().sent("a").got("a", "t1", 1.0).got("a", "t2", 5.0, 2).did("complete", "a", "t2", 6.0)
    ),
    "came back before its delay": (
        Tale().sent("a").got("a", "t1", 1.0).did("fail", "a", "t1", 2.0, delay=5.0).got("a", "t2", 3.0, 2)
    ),
    "attempts beyond max_attempts": Tale().sent("a").drained("a", "t9", 100.0, 5),
    "attempt number": (
        Tale().sent("a").got("a", "t1", 1.0).did("release", "a", "t1", 2.0).got("a", "t2", 3.0, 2)
    ),
    "one token twice": Tale().sent("a").got("a", "t1", 1.0).did("release", "a", "t1", 2.0).got("a", "t1", 3.0),
    "a late holder was heard": (
        Tale().sent("a").got("a", "t1", 1.0).got("a", "t2", 12.0, 2).did("complete", "a", "t1", 13.0)
    ),
    "a settle after a cancel was heard": simple().asked("cancel", "a", 1.5, 1),
    "a settle after a take-back was heard": simple().asked("take_back", "a", 1.5, 1),
    "a live holder was refused": Tale().sent("a").got("a", "t1", 1.0).did("complete", "a", "t1", 2.0, outcome="lost"),
    "a repeated settle was refused": simple().did("complete", "a", "t1", 3.0, again=True, outcome="lost"),
    "a repeated settle was refused (not kept)": (
        Tale().sent("a").got("a", "t1", 1.0).did("complete", "a", "t1", 2.0, keep=False)
        .did("complete", "a", "t1", 3.0, keep=False, again=True, outcome="gone")
    ),
    "ended twice": simple().got("a", "t2", 12.0, 2).did("complete", "a", "t2", 13.0),
    "delivered after its end": simple().got("a", "t2", 12.0, 2),
    "lost": Tale().sent("a"),
    "not ended after the drain": Tale().sent("a").ends("a", "pending"),
    "kept although keep=False": (
        Tale().sent("a").got("a", "t1", 1.0).did("complete", "a", "t1", 2.0, keep=False).ends("a")
    ),
    "another end than was acknowledged": dead().ends("a", "completed"),
    "ended by nobody": Tale().sent("a").ends("a", "completed"),
    "cancel said False of a waiting message": waiting().asked("cancel", "a", 1.0, 0),
    "get said None": waiting().asked("get", "a", 1.0),
    "replayed twice": copied().drained("c", "t8", 101.0, uid="u-a", origin="a"),
    "replayed by nobody": dead().ends("a", "dead").drained("b", "t9", 100.0, uid="u-a", origin="a"),
    "a replayed message was lost": dead().replayed("a", 5.0),
    "a replayed dead letter is still there": copied().ends("a", "dead"),
    "a replay added nothing": (
        dead().ends("a", "dead").replayed("a", 5.0, 0)
        .call("list", 4.0, view="dead", answer={"seen": [Sighting("a", "dead", 1, 4, "u-a")]})
    ),
    "delivered while paused": Tale().sent("a").call("pause", 0.5).got("a", "t1", 1.0).did("complete", "a", "t1", 2.0),
    "outlasted a purge": waiting().call("purge", 1.0),
    "a batch changed": (
        Tale().sent("a").sent("b").owned(1.0, 1).batch(2.0, 1, given_of("a", "s1")).owned(30.0, 2, by="p2")
        .batch(31.0, 1, given_of("b", "s2"), epoch=2, by="p2")
    ),
    "a batch left": left(),
    "two owners at once": streamed().owned(3.0, 2, by="p2"),
    "a late owner was heard": (
        Tale().sent("a").owned(1.0, 1).owned(30.0, 2, by="p2").batch(31.0, 1, given_of("a", "s1"), epoch=1)
    ),
    "priorities out of order": (
        Tale().sent("a").sent("b", priority=7).drained("a", "t8", 100.0).drained("b", "t9", 101.0, priority=7)
    ),
    "order within a priority and producer": (
        Tale().sent("a").sent("b", at=1.0).drained("b", "t8", 100.0).drained("a", "t9", 101.0)
    ),
    "order within a priority, across producers": (
        Tale().sent("a").sent("b", at=1.0, by="p1").drained("b", "t8", 100.0).drained("a", "t9", 101.0)
    ),
    "stats: total": simple().counting("after", total=7),
    "stats before the drain": waiting().counting("before", delayed=1, total=1),
    "stats in the drain": waiting().counting("middle", pending=1, total=1),
    "stats: something is left": waiting().counting("after", retry=1, total=2),
    "stats: dead": dead().ends("a", "dead").counting("after", dead=0, total=0),
    "stats: archived": simple().counting("after", archived=2, total=2),
    "stats: completed": simple().counting("after", completed=0),
    "a list is not in id order": Tale().sent("a").sent("b", at=1.0),
    "a list has one twice": simple(),
}  # fmt: skip
BAD["expired before its time"].calls[-1].seen = [Sighting("a", "failed", 0, 4, "u-a", "expired")]
BAD["error in the quiet at the end"].rest.errors = ["Damaged()"]
BAD["a list is not in id order"].drained("b", "t8", 100.0).drained("a", "t9", 101.0)
BAD["a list has one twice"].rest.archive.append("a")


@pytest.mark.parametrize("kind", KINDS)
def test_a_breach_is_found(kind: str) -> None:
    found = BAD[kind].breaches()
    assert kind in {breach.kind for breach in found}, found
    assert all(breach.example for breach in found)


def test_every_kind_of_breach_has_its_history() -> None:
    assert set(BAD) == set(KINDS)
    assert set(COUNTED_AS) <= set(KINDS)


def test_with_one_head_a_refused_claim_of_a_batch_has_settled_nothing() -> None:
    assert {each.kind for each in settled_and_refused(shards=1).breaches()} == {"ended by nobody"}


# ---------------------------------------------------------------------- what a batch holds is held


def test_a_message_in_a_batch_is_nobody_elses() -> None:
    tale = Tale().sent("a").owned(1.0, 1).batch(2.0, 1, given_of("a", "s1")).got("a", "t2", 50.0, 2, by="p2")
    assert "two holders at once, by the store's clock" in {breach.kind for breach in tale.breaches()}


def test_a_settled_batch_ends_its_messages() -> None:
    tale = streamed().got("a", "t2", 50.0, 2, by="p2")
    assert "delivered after its end" in {breach.kind for breach in tale.breaches()}


def test_a_message_of_a_batch_can_have_an_end_of_its_own() -> None:
    tale = Tale().sent("a").owned(1.0, 1).batch(2.0, 1, given_of("a", "s1")).did("kill", "a", "s1", 3.0)
    tale.call("settle batch", 4.0, by="p1", generation=1, epoch=1, batch=1)
    assert tale.ends("a", "dead").breaches() == []


# ---------------------------------------------------------------------- doubts


def test_a_killed_caller_may_have_been_heard() -> None:
    """Its release may have given the attempt back or not; after it no lease is certain."""
    for attempt in (1, 2):
        tale = Tale().sent("a").got("a", "t1", 1.0, by="p1").did("release", "a", "t1", 2.0, outcome="unknown")
        tale.hurts.append(Hurt(process="p1", began=2.05, ended=2.05, killed=True))
        assert tale.drained("a", "t9", 100.0, attempt).breaches() == []


def test_clocks_of_a_bucket_may_differ_by_a_second() -> None:
    early = Tale(store="s3").sent("a", delay=5.0).drained("a", "t9", 4.2)
    assert early.breaches() == []
    assert Tale(store="s3").sent("a", delay=7.0).drained("a", "t9", 4.2).breaches()


def test_shards_have_an_order_each() -> None:
    tale = Tale(store="s3", shards=4).sent("a").sent("b", at=5.0).drained("b", "t8", 100.0).drained("a", "t9", 101.0)
    assert [breach.kind for breach in tale.breaches()] == ["a list is not in id order"]


# ---------------------------------------------------------------------- the files of a run


def test_a_run_is_read_from_its_files(tmp_path) -> None:
    log = Log(tmp_path / "p0.calls")
    log.write(Asked(call="p0.0#1", began=1.0, op="enqueue", queue="q", uids=["u-a"]))
    log.write(Answered(call="p0.0#1", ended=1.1, outcome="ok", ids=["a"]))
    log.write(Asked(call="p0.0#2", began=2.0, op="dequeue", queue="q", lease=1.0))
    with (tmp_path / "p0.calls").open("ab") as file:
        file.write(b'{"type":"answered","call":"p0.0#2","en')
    Log(tmp_path / "conductor.calls").write(Hurt(process="p0", began=2.5, ended=2.5, killed=True))
    calls, hurts = read(tmp_path)
    assert [(call.op, call.outcome, call.ids) for call in calls] == [
        ("enqueue", "ok", ["a"]),
        ("dequeue", "unknown", []),
    ]
    assert [hurt.process for hurt in hurts] == ["p0"]
    write(tmp_path, Tale().ending())
    verdict = judged(tmp_path)
    assert not verdict.valid
    assert (verdict.lost, verdict.acknowledged, verdict.kills, verdict.effective_kills) == (1, 1, 1, 1)
    assert verdict.failures[0].startswith("lost: 1; e.g. a")
