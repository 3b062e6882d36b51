"""Settlements of one claim that are all alike take a shorter way; what they answer is the same."""

from __future__ import annotations

import msgspec
import pytest

import holdfast
from holdfast.stores.postgres import rows
from holdfast.stores.records import Claimed, Envelope, Settlement
from holdfast.testing.contract.base import eventually

from .fixtures import Database


def completed(messages: list[Claimed], **more: object) -> list[Settlement]:
    return [Settlement(message.id, message.token, "complete", **more) for message in messages]


@pytest.mark.parametrize("archive", [True, False])
async def test_part_of_a_claim_settled_before_is_success_again(postgres: Database, *, archive: bool) -> None:
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs", archive=archive)
        store = broker.store
        await store.append("jobs", [Envelope(b"x")] * 6)
        messages = (await store.claim("jobs", 6, 60)).messages
        assert await store.settle("jobs", completed(messages[:3])) == ["ok"] * 3
        assert await store.settle("jobs", completed(messages)) == ["ok"] * 6
        assert await store.settle("jobs", completed([messages[0], messages[0]])) == ["ok"] * 2
        stats = await store.stats("jobs")
        assert (stats.pending, stats.processing, stats.completed) == (0, 0, 6)
        assert stats.archived == (6 if archive else 0)


@pytest.mark.parametrize("archive", [True, False])
async def test_lost_lease_among_the_messages_of_a_claim_is_told_alone(postgres: Database, *, archive: bool) -> None:
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs", archive=archive)
        store = broker.store
        await store.append("jobs", [Envelope(b"x")] * 3)
        messages = (await store.claim("jobs", 3, 0.05)).messages
        await store.extend("jobs", [(m.id, m.token) for m in messages[1:]], 60)

        async def again() -> bool:
            return [m.id for m in (await store.claim("jobs", 3, 60)).messages] == [messages[0].id]

        await eventually(again, "the end of the first lease")
        assert await store.settle("jobs", completed(messages)) == ["lost", "ok", "ok"]
        stats = await store.stats("jobs")
        assert (stats.processing, stats.completed) == (1, 2)


async def test_keep_decides_against_the_queue(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        store = broker.store
        for name, archive in (("keeps", True), ("drops", False)):
            await broker.queue(name, archive=archive)
            await store.append(name, [Envelope(b"x")] * 2)
            messages = (await store.claim(name, 2, 60)).messages
            assert await store.settle(name, completed(messages, keep=not archive)) == ["ok"] * 2
            assert (await store.stats(name)).archived == (0 if archive else 2)


async def test_archive_that_was_switched_off_elsewhere_keeps_nothing(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker, holdfast.connect(postgres.url) as other:
        await broker.queue("jobs")
        store = broker.store
        await store.append("jobs", [Envelope(b"x")] * 2)
        messages = (await store.claim("jobs", 2, 60)).messages
        await (await other.queue("jobs", archive=False)).stats()
        assert await store.settle("jobs", completed(messages)) == ["ok"] * 2
        assert await store.settle("jobs", completed(messages)) == ["ok"] * 2
        assert ((await store.stats("jobs")).completed, (await store.stats("jobs")).archived) == (2, 0)


def _token(number: int, id: str) -> str:
    return f"{number:x}.{id[-12:]}"


def test_alike_are_only_those_that_one_statement_can_serve() -> None:
    ids = [f"01890a5d-ac96-7000-8000-0000000000{n:02x}" for n in range(3)]
    usual = [Settlement(id, _token(77, id), "complete", worker="w") for id in ids]
    assert rows.alike(usual) == rows.Alike(ids, 255, 77, None, "w")
    assert rows.alike([]) is None
    higher = ids[2].replace("-8000-", "-8040-")
    for changed in (
        {"action": "retry"},
        {"result": b"1"},
        {"keep": True},
        {"worker": "other"},
        {"token": _token(78, ids[2])},
        {"token": _token(77, ids[0])},
        {"id": higher, "token": _token(77, higher)},
        {"id": "not an id", "token": _token(77, "not an id")},
        {"id": ids[2].upper(), "token": _token(77, ids[2].upper())},
    ):
        assert rows.alike([*usual[:2], msgspec.structs.replace(usual[2], **changed)]) is None, changed
    strange = [Settlement(id, f"no number.{id[-12:]}", "complete") for id in ids]
    assert rows.alike(strange) is None
