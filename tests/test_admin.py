"""Operations for people: reports, messages by receipt, replay in steps, the doctor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Broker, Enqueued, MessageNotFound, Queue, QueueInfo, QueueNotFound, admin, checkup, connect


@pytest.fixture(params=["memory", "folder"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    async with connect("memory://" if request.param == "memory" else tmp_path / "data") as broker:
        yield broker


async def dead_letters(queue: Queue[Any], count: int) -> list[str]:
    ids = await queue.enqueue_many(range(count))
    for delivery in await queue.dequeue_many(count):
        await delivery.kill("broken")
    return ids


async def test_overview_reports_every_queue_by_name(broker: Broker) -> None:
    assert await admin.overview(broker) == []
    await (await broker.queue("b", lease=60)).enqueue_many([1, 2])
    await (await broker.queue("a")).pause()
    first, second = await admin.overview(broker)
    assert (first.name, first.paused, first.stats.pending) == ("a", True, 0)
    assert (second.name, second.paused, second.stats.pending) == ("b", False, 2)
    assert second.options.lease == 60
    assert abs(second.created_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_report_of_one_queue(broker: Broker) -> None:
    await broker.queue("a")
    assert (await admin.report(broker, "a")).stats.total == 0
    with pytest.raises(QueueNotFound):
        await admin.report(broker, "nope")


async def test_read_and_settle_by_receipt(broker: Broker) -> None:
    queue = await broker.queue("q")
    ids = [each.id for each in await admin.send(queue, [{"a": 1}, b"\x00\xff"], priority=3, headers={"k": "v"})]
    first, second = await admin.read(queue, 5, lease=60, wait=0)
    assert [first.id, second.id] == ids
    assert (first.value, second.value) == ({"a": 1}, b"\x00\xff")
    assert (first.priority, first.attempt, first.max_attempts, first.headers) == (3, 1, 3, {"k": "v"})
    assert first.expires_at > first.enqueued_at
    await queue.complete(first.receipt, {"done": True})
    report = await admin.message(queue, first.id)
    assert (report.status, report.result, report.attempts) == ("completed", {"done": True}, 1)
    assert report.finished_at is not None


async def test_a_payload_that_cannot_be_read_is_shown_as_bytes(broker: Broker) -> None:
    queue: Queue[Any] = await broker.queue("q")
    id = await queue.enqueue({"a": 1})
    typed = await broker.queue("q", int)
    assert (await admin.message(typed, id)).value == b'{"a":1}'


async def test_send_with_a_dedup_key(broker: Broker) -> None:
    queue = await broker.queue("q")
    [first] = await admin.send(queue, [1], dedup_key="k")
    assert first.new
    assert await admin.send(queue, [2], dedup_key="k") == [Enqueued(first.id, False)]
    assert (await queue.stats()).pending == 1


async def test_unknown_message(broker: Broker) -> None:
    queue = await broker.queue("q")
    with pytest.raises(MessageNotFound):
        await admin.message(queue, "01a1e160-675f-7000-814e-56320f600000")


async def test_pages(broker: Broker) -> None:
    queue = await broker.queue("q")
    ids = await dead_letters(queue, 5)
    page = await admin.page(queue.dead, limit=3)
    assert [one.id for one in page] == ids[:3]
    assert [one.id for one in await admin.page(queue.dead, limit=3, after=page[-1].id)] == ids[3:]
    assert {(one.status, one.error) for one in page} == {("dead", "broken")}


async def test_replay_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "PAGE_ROWS", 3)
    queue = await broker.queue("q")
    ids = await dead_letters(queue, 8)
    steps: list[int] = []
    assert await admin.replay_dead(queue, [ids[0]]) == 1
    assert await admin.replay_dead(queue, on_progress=steps.append) == 7
    assert steps == [3, 3, 1]
    assert await admin.replay_dead(queue) == 0
    assert sorted(one.value for one in await queue.dequeue_many(100)) == list(range(8))


async def test_maintain(broker: Broker) -> None:
    await broker.queue("a")
    await broker.queue("b")
    assert list(await admin.maintain(broker)) == ["a", "b"]
    assert list(await admin.maintain(broker, ["b"])) == ["b"]


# ---------------------------------------------------------------------- doctor


async def examine(url: str | None) -> dict[str, tuple[str, str]]:
    return {check.name: (check.state, check.detail) for check in await admin.doctor(url)}


async def test_doctor_of_a_folder(tmp_path: Path) -> None:
    found = await examine(str(tmp_path / "data"))
    assert "fail" not in {state for state, _ in found.values()}
    assert found["configuration"] == ("ok", "the argument names the store")
    assert "opened in" in found["store"][1]
    state, detail = found["survives"]
    assert state == "ok"
    assert "killed processes: yes" in detail
    assert "loss of the disk: no" in detail
    assert found["clock"][0] == "ok"
    assert found["oldest message"] == ("ok", "nothing waits")


async def test_doctor_of_memory_warns_that_nothing_survives() -> None:
    found = await examine("memory://")
    assert found["survives"][0] == "warn"
    assert found["clock"][0] == "ok"


async def test_doctor_looks_at_the_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "data")
    async with connect(url) as broker:
        queue = await broker.queue("q")
        await dead_letters(queue, 2)
        await queue.enqueue(1)
        await queue.pause()
    monkeypatch.setattr(checkup, "OLD_MESSAGE_S", 0.0)
    found = await examine(url)
    assert found["queues"] == ("ok", "1 queues keep 3 messages")
    assert found["paused"][0] == "warn"
    assert found["dead letters"] == ("warn", "2 in q: look with `holdfast dead list QUEUE`")
    assert found["oldest message"][0] == "warn"
    assert "does a worker run?" in found["oldest message"][1]


@pytest.mark.parametrize("url", ["ftp://user:secret@host", "gopher://host:8080", "not a url", ""])
async def test_doctor_of_a_wrong_url(url: str) -> None:
    found = await examine(url)
    assert list(found) == ["configuration"]
    assert found["configuration"][0] == "fail"
    assert "secret" not in found["configuration"][1]


async def test_doctor_of_a_place_that_cannot_be_opened() -> None:
    found = await examine("file:///dev/null/data")
    assert (found["configuration"][0], found["store"][0]) == ("ok", "fail")


async def test_doctor_says_who_named_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    assert (await examine(None))["configuration"][1] == "nothing names a store, so it is ./holdfast-data"
    (tmp_path / "holdfast.yaml").write_text("url: memory://\n")
    assert (await examine(None))["configuration"][1] == "holdfast.yaml names the store"
    monkeypatch.setenv("HOLDFAST_URL", str(tmp_path / "other"))
    assert (await examine(None))["configuration"][1] == "HOLDFAST_URL names the store"
    (tmp_path / "holdfast.yaml").write_text("stor: {}\n")
    assert (await examine(None))["configuration"][0] == "fail"


async def test_a_queue_that_goes_meanwhile_is_no_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gone", "here"):
        await broker.queue(name)
    listed = await broker.queues()
    await broker.delete_queue("gone")

    async def as_listed() -> list[QueueInfo]:
        return listed

    monkeypatch.setattr(broker.store, "queues", as_listed)
    assert [report.name for report in await admin.overview(broker)] == ["here"]
    assert list(await broker.stats()) == list(await broker.maintain()) == ["here"]
    assert list(await admin.maintain(broker)) == ["here"]


async def test_consumers_and_what_the_doctor_says_of_them(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with connect(url) as broker:
        await (await broker.queue("emails")).enqueue_many(list(range(30)))
        await broker.queue("others")
        assert await admin.consumers(broker) == []
        assert "consumers" not in {check.name for check in await admin.doctor(url)}
        batches = broker.store.batches
        assert batches is not None
        owner = await batches.own("emails", "etl", holder="host:1:x", lease=60.0)
        await batches.claim_batch(owner, after=0, limit=10)
        await batches.manifest(owner, 0, 1)
        await batches.claim_batch(owner, after=1, limit=5)
        (found,) = await admin.consumers(broker, ["emails"])
        assert 0 < found.lease <= 60
        assert found == admin.ConsumerReport("emails", "etl", "host:1:x", found.lease, 2, 5, 0, 10, 20)
        state, detail = (await examine(url))["consumers"]
        assert (state, detail) == ("ok", "1 streams, 1 running; at most 20 messages behind")
        await batches.beat(owner, 0.0)
        state, detail = (await examine(url))["consumers"]
        assert state == "warn"
        assert detail.startswith("etl holds 5 of emails and no query runs")
        assert (await admin.consumers(broker))[0].owner == ""
