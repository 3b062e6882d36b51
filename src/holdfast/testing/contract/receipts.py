"""Receipts and tokens that are not those of the current lease: always refused, and never do they change anything.

Forged, empty, truncated, of another message, queue or store, and old ones of the same message, on every verb.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from ...broker import Broker, connect
from ...deliveries import Delivery, Lease, read_receipt, write_receipt
from ...errors import ConfigError, LeaseLost, MessageNotFound
from ...queue import Queue
from ...retry import Fixed
from ...stores.records import Action, Envelope, Settlement, Stats, Stored
from .base import LONG_S, SHORT_S, StoreContract

ACTIONS: list[Action] = ["complete", "retry", "dead", "release"]
REFUSED = (LeaseLost, MessageNotFound, ConfigError)
NOBODYS = "01890a5d-ac96-774b-bcce-b302099a8057"  # an id as ours are, of no message

Verb = Callable[[Queue[Any], Any], Awaitable[Any]]
SINGLE: dict[str, Verb] = {
    "complete": lambda queue, receipt: queue.complete(receipt, "forged"),
    "complete-and-drop": lambda queue, receipt: queue.complete(receipt, keep=False),
    "fail": lambda queue, receipt: queue.fail(receipt, "forged", retry_in=0),
    "release": lambda queue, receipt: queue.release(receipt),
    "kill": lambda queue, receipt: queue.kill(receipt, "forged"),
    "extend": lambda queue, receipt: queue.extend(receipt, 10 * LONG_S),
}
MANY: dict[str, Verb] = {
    "complete_many": lambda queue, receipt: queue.complete_many([receipt, receipt], ["forged", "forged"]),
    "fail_many": lambda queue, receipt: queue.fail_many([receipt, receipt], "forged", retry_in=0),
    "release_many": lambda queue, receipt: queue.release_many([receipt, receipt]),
    "kill_many": lambda queue, receipt: queue.kill_many([receipt, receipt], "forged"),
    "extend_many": lambda queue, receipt: queue.extend_many([receipt, receipt], 10 * LONG_S),
}
# What became of the message since the receipt was good; a lease of it is over in each.
STATES = ["held by another", "completed", "dead", "cancelled", "retrying", "released"]


def changed(receipt: str, **parts: Any) -> str:
    """The receipt with something else in it."""
    lease = read_receipt(receipt)
    assert lease is not None
    known = {"id": lease.id, "token": lease.token, "attempt": lease.attempt, "max_attempts": lease.max_attempts}
    return write_receipt(Lease(**{**known, **parts}))


def raw(*parts: Any) -> str:
    """A receipt that was never written by us."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(parts)).decode().rstrip("=")


def forgeries(id: str, receipt: str) -> dict[str, str]:
    """Receipts for this message that nobody was given, made from its id alone or from a receipt that is no longer good.

    All of them fail with a good receipt too, but for those that only say what an old one does.
    """
    lease = read_receipt(receipt)
    assert lease is not None
    token = lease.token
    return {
        "nothing": "",
        "a word": "forged",
        "the id": id,
        "an empty token": raw(id, "", 1, 3),
        "a blank token": raw(id, " ", 1, 3),
        "a token of dots": raw(id, "...", 1, 3),
        "a token of zeros": raw(id, "0", 1, 3),
        "a token with NUL": raw(id, "\0", 1, 3),
        "a huge token": raw(id, "x" * 1_000_000, 1, 3),
        "a token half as long": changed(receipt, token=token[: len(token) // 2]),
        "a token less a letter": changed(receipt, token=token[:-1]),
        "a token and a letter": changed(receipt, token=token + "0"),
        "a token in capitals": changed(receipt, token=f" {token.upper()} "),
        "half a receipt": receipt[: len(receipt) // 2],
        "a receipt less a letter": receipt[:-1],
        "no numbers": raw(id, token),
        "numbers that are text": raw(id, token, "1", "3"),
        "another id": changed(receipt, id=NOBODYS),
        "an id with another end": changed(receipt, id=id[:-1] + ("0" if id[-1] != "0" else "1")),
        "an id with another beginning": changed(receipt, id=("1" if id[0] != "1" else "0") + id[1:]),
    }


class Receipts(StoreContract):
    """Without the receipt of the current lease nothing can be changed."""

    async def picture(self, queue: Queue[Any], *ids: str) -> Any:
        """All events of these messages, and the counts."""
        records = [await queue.get(id) for id in ids]
        stats: Stats = await queue.stats()
        return [None if one is None else _told(one._stored) for one in map(_plain, records)], _counts(stats)

    async def refused(self, queue: Queue[Any], receipt: Any, kind: str = "") -> None:
        """Every verb refuses it."""
        for name, verb in SINGLE.items():
            try:
                await verb(queue, receipt)
            except REFUSED:
                continue
            raise AssertionError(f"{name} took {kind or receipt}")
        for name, verb in MANY.items():
            assert await verb(queue, receipt) == [False, False], (name, kind)

    async def ended(self, state: str) -> tuple[Queue[Any], str, str]:
        """A queue, the id of its message in this state, and the receipt of a lease that was over before."""
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=9)
        id = await queue.enqueue("guarded", priority=7, headers={"k": "v"})
        old = await self.take(queue, lease=SHORT_S)
        await self.advance(SHORT_S)
        new = await self.take(queue)
        assert new.id == id
        if state == "held by another":
            pass
        elif state == "completed":
            await new.complete("done")
        elif state == "dead":
            await new.kill("why")
        elif state == "retrying":
            await new.fail("why")
        elif state == "cancelled":
            await new.release(LONG_S)
            assert await queue.cancel(id)
        else:
            await new.release(LONG_S)
        return queue, id, old.receipt

    @pytest.mark.parametrize("state", STATES)
    async def test_forged_receipts_change_nothing_whatever_the_state(self, state: str) -> None:
        queue, id, old = await self.ended(state)
        before = await self.picture(queue, id)
        for kind, forged in forgeries(id, old).items():
            if (kind, state) == ("the id", "held by another"):
                continue  # which is as good as a receipt in the process that holds it
            await self.refused(queue, forged, kind)
            assert await self.picture(queue, id) == before, kind

    @pytest.mark.parametrize("state", STATES)
    async def test_old_receipts_change_nothing_whatever_the_state(self, state: str) -> None:
        queue, id, old = await self.ended(state)
        before = await self.picture(queue, id)
        await self.refused(queue, old)
        assert await self.picture(queue, id) == before

    async def test_forged_receipts_of_a_held_message_change_nothing_and_the_lease_stays(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        delivery = await self.take(queue)
        before = await self.picture(queue, id)
        for kind, forged in forgeries(id, delivery.receipt).items():
            if kind != "the id":  # which is as good as a receipt in the process that holds it
                await self.refused(queue, forged, kind)
                assert await self.picture(queue, id) == before, kind
        await queue.complete(delivery.receipt)

    async def test_forged_receipts_of_a_message_nobody_held_change_nothing(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many([1])
        ids.append(await queue.enqueue(2, delay=LONG_S))
        before = await self.picture(queue, *ids)
        for id in ids:
            for kind, forged in forgeries(id, write_receipt(Lease(id, "0.0.0.0", 1, 3))).items():  # nosec B104 # no address
                await self.refused(queue, forged, kind)
                assert await self.picture(queue, *ids) == before, kind

    @pytest.mark.parametrize("verb", ["complete", "fail", "kill", "release"])
    async def test_receipt_that_was_used_is_good_for_the_same_verb_only(self, verb: str) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=9)
        id = await queue.enqueue(1)
        receipt = (await self.take(queue)).receipt
        settle: dict[str, Callable[[], Awaitable[Any]]] = {
            "complete": lambda: queue.complete(receipt, "first"),
            "fail": lambda: queue.fail(receipt, "first"),
            "kill": lambda: queue.kill(receipt, "first"),
            "release": lambda: queue.release(receipt, LONG_S),
        }
        await settle[verb]()
        before = await self.picture(queue, id)
        for other, call in settle.items():
            if other == verb:
                await call()
            elif "complete" in (verb, other):
                with pytest.raises(LeaseLost):
                    await call()
            assert await self.picture(queue, id) == before, other
        with pytest.raises(LeaseLost):
            await queue.extend(receipt, LONG_S)
        assert await self.picture(queue, id) == before

    async def test_receipt_of_a_message_that_is_gone_finds_nothing(self) -> None:
        queue = await self.queue()
        first, _ = await queue.enqueue_many([1, 2])
        one, two = await self.take_all(queue, 2)
        await one.complete(keep=False)
        for verb in ("fail", "release", "kill", "extend"):
            with pytest.raises(REFUSED):
                await SINGLE[verb](queue, one.receipt)
        for kind, forged in forgeries(first, one.receipt).items():
            await self.refused(queue, forged, kind)
        assert await queue.status(first) is None
        assert (await queue.stats()).completed == 1
        await two.complete()

    async def test_receipt_of_another_message_settles_neither(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many([1, 2, 3])
        first, second = await self.take_all(queue, 2)
        before = await self.picture(queue, *ids)
        for mine, other in ((first, second), (second, first)):
            await self.refused(queue, changed(mine.receipt, token=other.token))
        await self.refused(queue, changed(first.receipt, id=ids[2]))
        assert await self.picture(queue, *ids) == before
        assert await queue.complete_many([first.receipt, second.receipt]) == [True, True]

    async def test_receipt_of_another_queue_changes_neither(self) -> None:
        here, there = await self.queue("here"), await self.queue("there")
        mine, other = await here.enqueue(1), await there.enqueue(1)
        held, theirs = await self.take(here), await self.take(there)
        before = await self.picture(here, mine), await self.picture(there, other)
        for queue, receipt in ((here, theirs.receipt), (there, held.receipt)):
            await self.refused(queue, receipt)
        await self.refused(here, changed(held.receipt, token=theirs.token))
        assert (await self.picture(here, mine), await self.picture(there, other)) == before
        await held.complete()
        await theirs.complete()

    async def test_delivery_of_another_queue_changes_neither(self) -> None:
        here, there = await self.queue("here"), await self.queue("there")
        mine, other = await here.enqueue(1), await there.enqueue(1)
        held, theirs = await self.take(here), await self.take(there)
        before = await self.picture(here, mine), await self.picture(there, other)
        await self.refused(here, theirs)
        assert (await self.picture(here, mine), await self.picture(there, other)) == before
        await held.complete()

    async def test_receipt_of_another_store_changes_nothing(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        await self.take(queue)
        before = await self.picture(queue, id)
        async with connect("memory://another-store-of-receipts") as elsewhere:
            other = await _held_in(elsewhere)
            await self.refused(queue, other.receipt)
            await self.refused(queue, changed(other.receipt, id=id))
        assert await self.picture(queue, id) == before

    async def test_numbers_in_a_receipt_are_nobodys_business(self) -> None:
        """The holder of a lease may claim any number of attempts: the store knows better."""
        queue = await self.queue(retry=Fixed(0), max_attempts=2)
        id = await queue.enqueue(1)
        for attempt, most in ((-(2**63), 2**63), (2**63, 1)):
            delivery = await self.take(queue)
            await queue.fail(changed(delivery.receipt, attempt=attempt, max_attempts=most), "why")
        assert await queue.status(id) == "dead"

    async def test_bad_receipts_among_good_ones_are_false_in_their_places(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S))
        ids = await queue.enqueue_many([1, 2, 3, 4])
        one, two, three, four = await self.take_all(queue, 4)
        bad = [changed(one.receipt, token=two.token), "", raw(one.id, "", 1, 3)]
        assert await queue.complete_many([bad[0], one.receipt, bad[1], bad[2], two.receipt]) == [
            *(False, True, False, False, True)
        ]
        assert await queue.fail_many([bad[2], three.receipt, bad[0], four], "why") == [False, True, False, True]
        assert [await queue.status(id) for id in ids] == ["completed", "completed", "retry", "retry"]


class Tokens(StoreContract):
    """The store's own fence, below the queue's: what reaches the seam may be any text."""

    def forged(self, token: str) -> list[str]:
        claim, dot, rest = token.partition(".")
        made = [
            *("", " ", ".", "...", "0", "-1", "None", "null", "\0", "*", ">", "%", "'", "é", "x" * 100_000),
            *(token[:-1], token[1:], token + "0", "0" + token, token * 2, token.replace(".", "-")),
            *(f"{claim}-7{dot}{rest}", f"{claim}-99999999{dot}{rest}", f"{claim}-{dot}{rest}", f"-1{dot}{rest}"),
        ]
        return [each for each in made if each != token]

    async def sight(self, name: str, *ids: str) -> Any:
        stored = await self.store.get(name, ids)
        letters = await self.store.stats(f"{name}/dead")
        return [one and _told(one) for one in stored], _counts(await self.store.stats(name)), letters.dead

    async def unmoved(self, name: str, id: str, tokens: list[str]) -> None:
        """One by one and all together, in this queue and among its dead letters."""
        for queue in (name, f"{name}/dead"):
            for action in ACTIONS:
                settlements = [Settlement(id, token, action, result=b"1", error="forged") for token in tokens]
                assert "ok" not in await self.store.settle(queue, settlements)
            ends = await self.store.extend(queue, [(id, token) for token in tokens], 10 * LONG_S)
            assert set(ends) == {None}
        assert await self.store.settle(name, [Settlement(id, "", "complete")]) != ["ok"]
        assert await self.store.settle(name, [Settlement(id, "", "complete", keep=False)]) != ["ok"]

    async def states(self) -> dict[str, tuple[str, str]]:
        """Ids of messages by state, with a token that was good for each, or for another, once."""
        await self.broker.queue("q", retry=Fixed(LONG_S), max_attempts=9)
        names = ["held", "released", "retrying", "dead", "completed", "cancelled", "gone", "pending"]
        ids = await self.store.append("q", [Envelope(b"1", priority=200 - n) for n in range(len(names))])
        first = (await self.store.claim("q", 7, SHORT_S)).messages
        assert [message.id for message in first] == ids[:7]
        await self.advance(SHORT_S)
        again = {message.id: message for message in (await self.store.claim("q", 7, LONG_S)).messages}
        ends: dict[str, Action] = {"retrying": "retry", "dead": "dead", "completed": "complete", "gone": "complete"}
        for name, id in zip(names[1:7], ids[1:7], strict=True):
            delay = LONG_S if name in ("retrying", "released", "cancelled") else 0.0
            keep = False if name == "gone" else None
            done = Settlement(id, again[id].token, ends.get(name, "release"), delay, keep=keep, error="why")
            assert await self.store.settle("q", [done]) == ["ok"]
        assert await self.store.cancel("q", ids[5])
        delayed = await self.store.append("q", [Envelope(b"1", delay=LONG_S)])
        tokens = [message.token for message in first]
        return dict(
            zip([*names, "delayed"], zip([*ids, *delayed], [*tokens, *tokens[:2]], strict=True), strict=True),
        )

    async def test_tokens_that_nobody_holds_are_refused_whatever_the_state(self) -> None:
        states = await self.states()
        ids = [id for id, _ in states.values()]
        before = await self.sight("q", *ids)
        for state, (id, old) in states.items():
            await self.unmoved("q", id, [old, *self.forged(old)])
            assert await self.sight("q", *ids) == before, state

    async def test_forged_tokens_of_a_held_message_are_refused(self) -> None:
        await self.broker.queue("q")
        [id] = await self.store.append("q", [Envelope(b"1")])
        [held] = (await self.store.claim("q", 1, LONG_S)).messages
        before = await self.sight("q", id)
        await self.unmoved("q", id, self.forged(held.token))
        assert await self.sight("q", id) == before
        wrong = [("1" if id[0] != "1" else "0") + id[1:], id[:-1] + ("1" if id[-1] != "1" else "0"), NOBODYS]
        for other in wrong:  # the token alone is not enough
            for action in ACTIONS:
                assert await self.store.settle("q", [Settlement(other, held.token, action)]) == ["unknown"]
            assert await self.store.extend("q", [(other, held.token)], 10 * LONG_S) == [None]
        assert await self.sight("q", id) == before
        assert await self.store.settle("q", [Settlement(id, held.token, "complete")]) == ["ok"]

    async def test_forged_tokens_of_a_dead_letter_in_hand_are_refused(self) -> None:
        await self.broker.queue("q")
        [id] = await self.store.append("q", [Envelope(b"1")])
        [held] = (await self.store.claim("q", 1, LONG_S)).messages
        assert await self.store.settle("q", [Settlement(id, held.token, "dead")]) == ["ok"]
        [letter] = (await self.store.claim("q/dead", 1, LONG_S, wait=self.patience)).messages
        before = await self.sight("q", id)
        await self.unmoved("q", id, [held.token + "0", *self.forged(letter.token)])
        assert await self.store.settle("q/dead", [Settlement(id, held.token, "complete")]) == ["lost"]
        assert await self.sight("q", id) == before
        assert await self.store.settle("q/dead", [Settlement(id, letter.token, "complete")]) == ["ok"]

    async def test_forged_tokens_are_refused_from_a_thread(self) -> None:
        await self.broker.queue("q")
        [id] = await self.store.append("q", [Envelope(b"1")])
        [held] = (await self.store.claim("q", 1, LONG_S)).messages
        leases = [(id, token) for token in self.forged(held.token)]
        ends = await asyncio.to_thread(self.store.extend_from_thread, "q", leases, 10 * LONG_S)
        if ends is None:
            pytest.skip("this store cannot")
        assert set(ends) == {None}


async def _held_in(broker: Broker) -> Delivery[Any]:
    queue = await broker.queue("jobs")
    await queue.enqueue(1)
    delivery = await queue.dequeue(lease=LONG_S)
    assert delivery is not None
    return delivery


def _plain(record: Any) -> Any:
    """A record of either face."""
    return getattr(record, "_blocking", record)


def _told(stored: Stored) -> tuple[Any, ...]:
    due = None if stored.visible_at is None else round(stored.visible_at)
    return (
        *(stored.id, stored.status, stored.payload, stored.headers, stored.priority, stored.attempts),
        *(stored.max_attempts, due, stored.result, stored.error, stored.worker),
    )


def _counts(stats: Stats) -> tuple[int, ...]:
    return (
        *(stats.total, stats.pending, stats.delayed, stats.processing, stats.retry, stats.dead),
        *(stats.archived, stats.completed, stats.failed),
    )
