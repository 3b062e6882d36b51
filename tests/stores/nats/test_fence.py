"""Receipts that nobody was given: the fence lets none of them through."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.stores.records import Action, Settlement

FORGED = ["", "0", "x" * 17]


async def of_every_state(broker: holdfast.Broker) -> dict[str, str]:
    """One message in each state in which nobody holds it, by that state."""
    queue = await broker.queue("jobs", max_attempts=2)
    ids = dict(zip(("dead", "retry", "completed"), await queue.enqueue_many(range(3)), strict=True))
    claims = await broker.store.claim("jobs", 3, 60, wait=5)
    held = {claimed.id: claimed.token for claimed in claims.messages}
    outcomes: dict[str, Action] = {"dead": "dead", "retry": "retry", "completed": "complete"}
    ends = [Settlement(ids[state], held[ids[state]], action, delay=60.0) for state, action in outcomes.items()]
    assert await broker.store.settle("jobs", ends) == ["ok"] * 3
    ids["failed"] = await queue.enqueue("cancelled")
    await queue.cancel(ids["failed"])
    ids["pending"] = await queue.enqueue("waits")
    return ids


@pytest.mark.parametrize("token", FORGED)
async def test_forged_token_extends_and_settles_nothing(broker: holdfast.Broker, token: str) -> None:
    ids = await of_every_state(broker)
    queue = await broker.queue("jobs")
    forged = [(id, token) for id in ids.values()]
    assert await broker.store.extend("jobs", forged, 60) == [None] * len(forged)
    answers = await broker.store.settle("jobs", [Settlement(id, token, "complete") for id, token in forged])
    assert set(answers) == {"lost"}
    assert await broker.store.extend("jobs/dead", [(ids["dead"], token)], 60) == [None]
    assert await broker.store.settle("jobs/dead", [Settlement(ids["dead"], token, "complete")]) == ["lost"]
    assert {state: await queue.status(id) for state, id in ids.items()} == {state: state for state in ids}


async def test_token_of_a_message_does_not_settle_its_dead_letter_side(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    id = await queue.enqueue(1)
    [claimed] = (await broker.store.claim("jobs", 1, 60, wait=5)).messages
    assert await broker.store.extend("jobs/dead", [(id, claimed.token)], 60) == [None]
    assert await broker.store.settle("jobs/dead", [Settlement(id, claimed.token, "complete")]) == ["lost"]
    assert await queue.status(id) == "processing"
    assert await broker.store.settle("jobs", [Settlement(id, claimed.token, "complete")]) == ["ok"]
