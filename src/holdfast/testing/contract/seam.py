"""The seam: a store's own answers, below the queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ...config import QueueOptions
from ...errors import MessageNotFound, QueueExists, QueueNotEmpty, QueueNotFound
from ...retry import NoRetry
from ...stores.records import Action, Claimed, Envelope, Settlement
from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract

ACTIONS: list[Action] = ["complete", "retry", "dead", "release"]


class Seam(StoreContract):
    """`holdfast.stores.base.Store`, method by method."""

    async def make(self, *payloads: bytes, **options: Any) -> list[str]:
        """The queue `q` with these messages."""
        await self.store.create_queue("q", QueueOptions(**options))
        return await self.store.append("q", [Envelope(payload) for payload in payloads])

    async def claim_one(self, queue: str = "q", lease: float = LONG_S) -> Claimed:
        claims = await self.store.claim(queue, 1, lease, wait=PATIENCE_S)
        assert claims.messages, claims
        return claims.messages[0]

    async def settle(self, message: Claimed, action: Action, token: str | None = None, **how: Any) -> str:
        settlement = Settlement(message.id, message.token if token is None else token, action, **how)
        [answer] = await self.store.settle("q", [settlement])
        return answer

    async def status(self, id: str, queue: str = "q") -> str | None:
        [stored] = await self.store.get(queue, [id])
        return None if stored is None else stored.status

    async def test_claim_gives_at_most_the_limit(self) -> None:
        await self.make(*[b"1"] * 10)
        for limit in (1, 3, 100):
            found = (await self.store.claim("q", limit, LONG_S)).messages
            assert len(found) == min(limit, 6 if limit == 100 else limit)

    async def test_every_claim_has_a_fresh_token(self) -> None:
        await self.make(b"1")
        tokens = []
        for _ in range(3):
            message = await self.claim_one()
            tokens.append(message.token)
            assert await self.settle(message, "release") == "ok"
        assert len(set(tokens)) == 3

    @pytest.mark.parametrize("action", ACTIONS)
    async def test_settle_with_a_forged_token_is_lost_and_changes_nothing(self, action: Action) -> None:
        await self.make(b"1")
        message = await self.claim_one()
        for token in ("forged", "", "0" * 16, message.token + "0"):
            assert await self.settle(message, action, token=token) == "lost"
        assert await self.status(message.id) == "processing"
        assert await self.settle(message, "complete") == "ok"

    @pytest.mark.parametrize("action", ACTIONS)
    async def test_settle_with_the_token_of_another_message_changes_neither(self, action: Action) -> None:
        await self.make(b"1", b"2")
        one, two = await self.claim_one(), await self.claim_one()
        assert await self.settle(one, action, token=two.token) == "lost"
        assert [await self.status(message.id) for message in (one, two)] == ["processing", "processing"]

    @pytest.mark.parametrize("action", ACTIONS)
    async def test_settle_with_an_old_token_is_lost_and_changes_nothing(self, action: Action) -> None:
        await self.make(b"1")
        old = await self.claim_one(lease=SHORT_S)
        await self.advance(SHORT_S)
        new = await self.claim_one()
        assert await self.settle(old, action) == "lost"
        assert await self.status(new.id) == "processing"
        assert await self.settle(new, "complete") == "ok"

    async def test_settle_of_an_unknown_message_is_unknown(self) -> None:
        await self.make()
        for id in ("01890a5d-ac96-774b-bcce-b302099a8057", "not-an-id", ""):
            assert await self.store.settle("q", [Settlement(id, "t", "complete")]) == ["unknown"]
            assert await self.store.extend("q", [(id, "t")], LONG_S) == [None]
            assert await self.store.get("q", [id]) == [None]
            with pytest.raises(MessageNotFound):
                await self.store.cancel("q", id)

    async def test_settle_of_a_message_that_is_not_held_is_lost(self) -> None:
        [id] = await self.make(b"1")
        assert await self.store.settle("q", [Settlement(id, "forged", "complete")]) == ["lost"]
        message = await self.claim_one()
        await self.settle(message, "release")
        assert await self.settle(message, "complete") == "lost"
        assert await self.status(id) == "pending"

    @pytest.mark.parametrize("action", ACTIONS)
    async def test_repeating_a_settlement_is_ok(self, action: Action) -> None:
        await self.make(b"1", max_attempts=9)
        message = await self.claim_one()
        answers = [await self.settle(message, action, delay=LONG_S) for _ in range(3)]
        assert answers == ["ok", "ok", "ok"]
        stats = await self.store.stats("q")
        assert (stats.total, stats.completed) == (1, int(action == "complete"))

    async def test_repeating_a_settlement_that_kept_nothing_is_ok(self) -> None:
        await self.make(b"1")
        message = await self.claim_one()
        assert [await self.settle(message, "complete", keep=False) for _ in range(2)] == ["ok", "ok"]
        assert (await self.store.stats("q")).completed == 1

    async def test_answers_come_in_input_order(self) -> None:
        await self.make(b"1", b"2")
        one, two = (await self.store.claim("q", 2, LONG_S)).messages
        asked = [("x", "t"), (two.id, two.token), (one.id, "wrong"), (one.id, one.token)]
        answers = await self.store.settle("q", [Settlement(id, token, "complete") for id, token in asked])
        assert answers == ["unknown", "ok", "lost", "ok"]

    async def test_empty_calls_are_nothing(self) -> None:
        await self.make()
        assert await self.store.append("q", []) == []
        assert await self.store.settle("q", []) == []
        assert await self.store.extend("q", [], LONG_S) == []
        assert await self.store.get("q", []) == []
        assert await self.store.replay("q", "dead", []) == 0
        assert await self.store.discard("q", "archive", []) == 0
        assert (await self.store.claim("q", 5, LONG_S)).messages == []

    async def test_extend_compares_tokens_and_never_shortens(self) -> None:
        await self.make(b"1", b"2")
        one, two = (await self.store.claim("q", 2, LONG_S)).messages
        ends = await self.store.extend("q", [(one.id, "wrong"), (two.id, two.token), (one.id, one.token)], 2 * LONG_S)
        assert ends[0] is None
        assert all(end is not None and abs(end - one.expires_at - LONG_S) < 5 for end in ends[1:])
        [again] = await self.store.extend("q", [(one.id, one.token)], 1)
        assert again is not None
        assert again >= (ends[2] or 0) - 0.001

    async def test_extend_from_a_thread_is_the_same_or_not_offered(self) -> None:
        await self.make(b"1")
        message = await self.claim_one()
        leases = [(message.id, message.token), (message.id, "wrong")]
        ends = await asyncio.to_thread(self.store.extend_from_thread, "q", leases, 2 * LONG_S)
        if ends is None:
            pytest.skip("this store cannot")
        assert ends[1] is None
        assert ends[0] is not None
        assert abs(ends[0] - message.expires_at - LONG_S) < 5

    async def test_release_takes_the_attempt_back(self) -> None:
        await self.make(b"1")
        for _ in range(3):
            message = await self.claim_one()
            assert (message.attempt, message.recovered, message.alone) == (1, False, False)
            await self.settle(message, "release")

    async def test_expired_lease_is_recovered_and_its_last_attempt_is_alone(self) -> None:
        await self.make(b"1", b"2", max_attempts=2)
        first = await self.claim_one(lease=SHORT_S)
        await self.advance(SHORT_S)
        claims = await self.store.claim("q", 10, LONG_S, wait=PATIENCE_S)
        assert [(m.id, m.attempt, m.recovered, m.alone) for m in claims.messages] == [(first.id, 2, True, True)]
        rest = await self.store.claim("q", 10, LONG_S)
        assert [(m.payload, m.recovered, m.alone) for m in rest.messages] == [(b"2", False, False)]

    async def test_message_that_must_be_alone_does_not_join_others(self) -> None:
        await self.make(b"1", max_attempts=2)
        await self.claim_one(lease=SHORT_S)
        await self.store.append("q", [Envelope(b"2", priority=9), Envelope(b"3", priority=9)])
        await self.advance(SHORT_S)
        answers = []
        while messages := (await self.store.claim("q", 10, LONG_S)).messages:
            answers.append([(message.payload, message.alone) for message in messages])
        assert answers == [[(b"2", False), (b"3", False)], [(b"1", True)]]

    @pytest.mark.parametrize("options", [{"max_attempts": 1}, {"retry": NoRetry()}], ids=["attempts", "no retry"])
    @pytest.mark.parametrize(("dead_letter", "status"), [(True, "dead"), (False, "failed")])
    async def test_claim_reports_what_expired_for_good(self, options: Any, dead_letter: bool, status: str) -> None:
        [id] = await self.make(b"1", dead_letter=dead_letter, **options)
        await self.claim_one(lease=SHORT_S)
        await self.advance(SHORT_S)
        claims = await self.store.claim("q", 10, LONG_S)
        assert claims.messages == []
        assert [(e.id, e.attempts, e.status, e.error) for e in claims.expired] == [(id, 1, status, "lease expired")]
        assert await self.status(id) == status
        assert (await self.store.claim("q", 10, LONG_S)).expired == []

    async def test_retry_without_an_attempt_left_is_dead(self) -> None:
        [id] = await self.make(b"1", max_attempts=1)
        await self.settle(await self.claim_one(), "retry", error="x")
        assert await self.status(id) == "dead"

    async def test_dead_letters_are_a_queue(self) -> None:
        [id] = await self.make(b"1", max_attempts=1)
        await self.settle(await self.claim_one(), "dead", error="x")
        for _ in range(3):
            message = await self.claim_one("q/dead")
            assert (message.id, message.payload) == (id, b"1")
            assert (await self.store.claim("q/dead", 1, LONG_S)).messages == []
            assert await self.store.settle("q/dead", [Settlement(id, message.token, "retry")]) == ["ok"]
            assert await self.status(id) == "dead"
        assert (await self.store.stats("q/dead")).pending == 1
        message = await self.claim_one("q/dead")
        done = Settlement(id, message.token, "complete", result=b"7")
        assert await self.store.settle("q/dead", [done, done]) == ["ok", "ok"]
        [stored] = await self.store.get("q", [id])
        assert stored is not None
        assert (stored.status, stored.result) == ("completed", b"7")
        assert [row.id for row in await self.store.scan("q", "archive")] == [id]
        stats = await self.store.stats("q")
        assert (stats.dead, stats.completed, stats.archived, stats.total) == (0, 1, 1, 1)

    async def test_lease_of_a_dead_letter_expires_and_is_extended(self) -> None:
        [id] = await self.make(b"1", max_attempts=1)
        await self.settle(await self.claim_one(), "dead")
        old = await self.claim_one("q/dead", lease=SHORT_S)
        await self.advance(SHORT_S)
        new = await self.claim_one("q/dead")
        assert new.id == id
        assert await self.store.settle("q/dead", [Settlement(id, old.token, "complete")]) == ["lost"]
        [lost, end] = await self.store.extend("q/dead", [(id, old.token), (id, new.token)], 2 * LONG_S)
        assert lost is None
        assert end is not None
        assert await self.store.settle("q/dead", [Settlement(id, new.token, "complete")]) == ["ok"]

    async def test_scan_pages_every_view_in_id_order(self) -> None:
        ids = await self.make(*[b"1"] * 7)
        ids += await self.store.append("q", [Envelope(b"1", delay=LONG_S)] * 2)
        messages = (await self.store.claim("q", 6, LONG_S)).messages
        await self.store.settle("q", [Settlement(m.id, m.token, "complete") for m in messages[:2]])
        await self.settle(messages[2], "dead")
        await self.settle(messages[3], "retry", delay=LONG_S)
        expected = {"archive": ids[:2], "dead": ids[2:3], "retry": ids[3:4], "processing": ids[4:6]}
        for view, found in {**expected, "ready": ids[6:7], "delayed": sorted(ids[7:])}.items():
            paged: list[str] = []
            while page := await self.store.scan("q", view, after=paged[-1] if paged else None, limit=1):  # type: ignore[arg-type]  # a literal, from a dict
                paged += [row.id for row in page]
            assert paged == found, view

    async def test_queue_of_a_message_is_found_whatever_its_state(self) -> None:
        names = ["other", "q", "gone"]
        await self.store.create_queue("other", QueueOptions())
        ready, held, done, dead = await self.make(b"1", b"2", b"3", b"4", max_attempts=1)
        [delayed] = await self.store.append("q", [Envelope(b"5", delay=LONG_S, priority=7)])
        [elsewhere] = await self.store.append("other", [Envelope(b"6")])
        claims = {each.id: each for each in (await self.store.claim("q", 4, LONG_S)).messages}
        ends: dict[str, Action] = {ready: "release", done: "complete", dead: "dead"}
        for id, action in ends.items():
            assert await self.settle(claims[id], action, error="why" if action == "dead" else None) == "ok"
        for id in (ready, held, done, dead, delayed):
            assert await self.store.find_queue(names, id) == "q"
        assert await self.store.find_queue(names, elsewhere) == "other"
        assert await self.store.find_queue(["q"], elsewhere) is None
        for unknown in (elsewhere[:-1] + ("0" if elsewhere[-1] != "0" else "1"), "no id"):
            assert await self.store.find_queue(names, unknown) is None
        assert await self.store.find_queue([], elsewhere) is None

    async def test_unknown_queue_is_not_found(self) -> None:
        calls: list[Any] = [
            lambda: self.store.append("nope", [Envelope(b"1")]),
            lambda: self.store.claim("nope", 1, LONG_S),
            lambda: self.store.settle("nope", [Settlement("x", "t", "complete")]),
            lambda: self.store.extend("nope", [("x", "t")], LONG_S),
            lambda: self.store.get("nope", ["x"]),
            lambda: self.store.scan("nope", "ready"),
            lambda: self.store.stats("nope"),
            lambda: self.store.purge("nope"),
            lambda: self.store.pause("nope", True),
            lambda: self.store.cancel("nope", "x"),
            lambda: self.store.configure("nope", QueueOptions()),
            lambda: self.store.delete_queue("nope"),
            lambda: self.store.replay("nope", "dead", ["x"]),
            lambda: self.store.discard("nope", "dead"),
        ]
        for call in calls:
            with pytest.raises(QueueNotFound):
                await call()
        assert await self.store.queue("nope") is None

    async def test_queues_are_created_once_and_deleted_when_empty(self) -> None:
        await self.make(b"1")
        with pytest.raises(QueueExists):
            await self.store.create_queue("q", QueueOptions())
        with pytest.raises(QueueNotEmpty):
            await self.store.delete_queue("q")
        await self.settle(await self.claim_one(), "complete")
        await self.store.delete_queue("q")
        assert await self.store.queues() == []

    async def test_discard_before_an_instant_spares_the_later(self) -> None:
        old, new = await self.make(b"1", b"2")
        await self.settle(await self.claim_one(), "complete")
        await self.advance(SHORT_S)
        between = await self.store.clock()
        await self.advance(SHORT_S)
        await self.settle(await self.claim_one(), "complete")
        assert await self.store.discard("q", "archive", before=between) == 1
        assert [await self.status(id) for id in (old, new)] == [None, "completed"]

    async def test_watch_wakes_on_a_change_and_ends_by_itself(self) -> None:
        await self.make()
        await asyncio.wait_for(self.store.watch("q", 0.05), PATIENCE_S)
        message = (await self.store.append("q", [Envelope(b"1")]))[0]
        claimed = await self.claim_one()
        watching = asyncio.create_task(self.store.watch("q", 2 * PATIENCE_S))
        await asyncio.sleep(0.05)
        await self.settle(claimed, "complete")
        await asyncio.wait_for(watching, PATIENCE_S)
        assert await self.status(message) == "completed"

    async def test_message_that_waits_says_which_worker_gave_it_back(self) -> None:
        [id] = await self.make(b"1")
        assert await self.settle(await self.claim_one(), "retry", delay=LONG_S, error="why", worker="w1") == "ok"
        [found] = await self.store.get("q", [id])
        assert found is not None
        assert (found.status, found.error, found.worker) == ("retry", "why", "w1")

    async def test_who_claims_a_message_holds_it_in_every_view(self) -> None:
        first, second = await self.make(b"1", b"2")
        claims = await self.store.claim("q", 2, LONG_S, worker="w1")
        assert {message.id for message in claims.messages} == {first, second}
        held = [*await self.store.get("q", [first, second]), *await self.store.scan("q", "processing")]
        assert [each and (each.status, each.worker) for each in held] == [("processing", "w1")] * 4
        assert await self.settle(claims.messages[0], "complete") == "ok"
        assert await self.settle(claims.messages[1], "complete", worker="w2") == "ok"
        done = [*await self.store.get("q", [first, second]), *await self.store.scan("q", "archive")]
        assert [each and each.worker for each in done] == ["w1", "w2"] * 2

    async def test_who_fails_a_message_without_a_name_is_who_claimed_it(self) -> None:
        [id] = await self.make(b"1", max_attempts=2)
        for action in ("release", "retry", "dead"):
            [message] = (await self.store.claim("q", 1, LONG_S, wait=PATIENCE_S, worker=f"to {action}")).messages
            assert await self.settle(message, action) == "ok"
            [found] = await self.store.get("q", [id])
            assert found is not None
            assert found.worker == f"to {action}"
        [letter] = (await self.store.claim("q/dead", 1, LONG_S, wait=PATIENCE_S, worker="undertaker")).messages
        [found] = await self.store.scan("q", "dead")
        assert (letter.id, found.worker) == (id, "undertaker")

    async def test_next_holder_takes_the_name_over(self) -> None:
        [id] = await self.make(b"1", max_attempts=2)
        await self.store.claim("q", 1, SHORT_S, worker="w1")
        await self.advance(SHORT_S)
        [again] = (await self.store.claim("q", 1, SHORT_S, wait=PATIENCE_S, worker="w2")).messages
        [found] = await self.store.get("q", [id])
        assert found is not None
        assert (again.recovered, found.worker) == (True, "w2")
        await self.advance(SHORT_S)
        assert [each.id for each in (await self.store.claim("q", 1, LONG_S, wait=PATIENCE_S)).expired] == [id]
        [found] = await self.store.get("q", [id])
        assert found is not None
        assert (found.status, found.worker) == ("dead", "w2")

    async def test_clock_goes_on_and_installing_twice_is_harmless(self) -> None:
        before = await self.store.clock()
        await self.advance(0.01)
        assert await self.store.clock() > before
        assert isinstance(await self.store.install(dry_run=True), list)
        await self.store.install()
        await self.store.install()
        assert all(check.state in ("ok", "warn", "fail") for check in await self.store.check())

    async def test_closing_twice_is_harmless(self) -> None:
        store = self.store
        await self.broker.close()
        await store.close()
