"""What the conformance suite cannot see: outages, deleted consumers, credentials, and what lies on the server."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import ConfigError, StoreError
from holdfast.retry import Fixed
from holdfast.stores.nats.faults import Refused
from holdfast.stores.nats.store import NatsStore
from holdfast.testing.contract.base import eventually, working
from tests.servers.nats import Server

SECRET = "canary-secret"


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


# ---------------------------------------------------------------------- outages


async def test_worker_goes_on_after_the_server_was_killed(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        seen: list[int] = []
        async with working(queue.worker(seen.append)):
            await queue.wait(await queue.enqueue(0), 10)
            for number in range(1, 3):
                await asyncio.to_thread(own.kill)
                await asyncio.to_thread(own.start)
                await queue.wait(await queue.enqueue(number), 20)
        assert sorted(set(seen)) == [0, 1, 2]


async def delete_consumer(store: NatsStore, stream: str) -> None:
    """As an operator would, once it is there."""

    async def deleted() -> bool:
        try:
            await store.connection.api(f"CONSUMER.DELETE.{stream}.0")
        except Refused:
            return False
        return True

    await eventually(deleted, "a consumer to delete")


async def test_consumer_deleted_on_the_server_is_made_again(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    store, seen = store_of(broker), list[int]()
    stream = store.register.names("jobs").task_stream
    async with working(queue.worker(seen.append, concurrency=4)):
        for number in range(200):
            await queue.enqueue(number)
            if number % 80 == 40:
                await delete_consumer(store, stream)

        async def all_done() -> bool:
            return (await queue.stats()).completed == 200

        await eventually(all_done, "200 completed messages")
    assert sorted(set(seen)) == list(range(200))


async def test_consumer_without_its_folder_is_made_anew(own: Server) -> None:
    """What a server is left with when a consumer is made while another client's deletion of it is under way."""
    async with holdfast.connect(own.url) as first, holdfast.connect(own.url) as second:
        queue = await first.queue("jobs")
        await queue.enqueue("held")
        held = await queue.dequeue(lease=60)
        assert held is not None
        stream = store_of(first).register.names("jobs").task_stream
        [folder] = own.folder.glob(f"data/jetstream/$G/streams/{stream}/obs/0")
        shutil.rmtree(folder)
        await (await second.queue("jobs")).enqueue("new")  # it has not seen the consumer yet, and makes sure of it
        taken = await (await second.queue("jobs")).dequeue_many(5, wait=5)
        assert [delivery.value for delivery in taken] == ["new"]
        await held.complete()


async def test_consumer_that_gives_nothing_of_its_backlog_is_made_anew(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    await queue.enqueue("waits")
    stream = store.register.names("jobs").task_stream
    await store.connection.api(f"CONSUMER.PAUSE.{stream}.0", {"pause_until": "2100-01-01T00:00:00Z"})
    delivery = await queue.dequeue(wait=20)
    assert delivery is not None
    assert (delivery.value, delivery.attempt) == ("waits", 1)


async def test_message_in_hand_survives_the_deletion_of_its_consumer(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue("mine")
    delivery = await queue.dequeue(lease=60)
    assert delivery is not None
    store = store_of(broker)
    await store.connection.api(f"CONSUMER.DELETE.{store.register.names('jobs').task_stream}.0")
    assert await queue.dequeue(wait=0.5) is None
    assert await queue.status(delivery.id) == "processing"
    await delivery.complete("still mine")
    assert await queue.dequeue(wait=0.5) is None
    stats = await queue.stats()
    assert (stats.completed, stats.pending, stats.processing) == (1, 0, 0)


async def test_claim_passes_over_what_others_hold_after_a_consumer_was_made_anew(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs", max_attempts=1), store_of(broker)
    await queue.enqueue_many(range(5))
    held = await queue.dequeue_many(3, lease=60)
    await delete_consumer(store, store.register.names("jobs").task_stream)
    assert [delivery.value for delivery in (await queue.dequeue(), await queue.dequeue()) if delivery] == [3, 4]
    assert await queue.dequeue() is None
    assert await queue.complete_many(held) == [True, True, True]


async def test_claim_tells_of_the_exhausted_and_goes_on(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs", max_attempts=1)
    await queue.enqueue_many(["poison", "healthy"])
    assert await queue.dequeue(lease=0.2) is not None
    await asyncio.sleep(0.25)
    claims = await broker.store.claim("jobs", 1, 60)
    assert [message.payload for message in claims.messages] == [b'"healthy"']
    assert len(claims.expired) == 1


async def test_calls_fail_within_their_deadline_while_the_server_is_away(own: Server) -> None:
    async with holdfast.connect(own.url, operation_timeout=1) as broker:
        queue = await broker.queue("jobs")
        await asyncio.to_thread(own.kill)
        started = time.monotonic()
        with pytest.raises(StoreError):
            await queue.enqueue(1)
        with pytest.raises(StoreError):
            await queue.stats()
        assert time.monotonic() - started < 15


async def answered(unknown: holdfast.UnknownOutcome) -> list[str] | None:
    """The repeat of a call; None while the server is still coming up."""
    try:
        return await unknown.retry()
    except StoreError:
        return None


async def test_unknown_outcome_is_repeated_with_the_same_ids(own: Server) -> None:
    async with holdfast.connect(own.url, operation_timeout=1) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue("before")
        await asyncio.to_thread(own.kill)
        with pytest.raises(holdfast.UnknownOutcome) as unknown:
            await queue.enqueue_many(["a", "b"])
        await asyncio.to_thread(own.start)
        for _ in range(2):
            assert await eventually(lambda: answered(unknown.value), "an answer") == unknown.value.ids
        taken = await queue.dequeue_many(10, wait=5)
        assert [delivery.value for delivery in taken] == ["before", "a", "b"]


# ---------------------------------------------------------------------- the wire


async def test_large_payloads_and_results_go_through_the_object_store(broker: holdfast.Broker) -> None:
    queue = await broker.queue("big")
    data = os.urandom(5 << 20)
    id = await queue.enqueue(data)
    delivery = await queue.dequeue(wait=5)
    assert delivery is not None
    assert delivery.payload == data
    await delivery.complete("r" * (2 << 20))
    record = await queue.get(id)
    assert record is not None
    assert (record.payload, len(record.result)) == (data, 2 << 20)
    assert await queue.archive.replay([id]) == 1
    assert await queue.archive.delete([id]) == 1
    again = await queue.dequeue(wait=5)
    assert again is not None
    assert again.payload == data
    await again.complete(keep=False)


async def test_two_prefixes_do_not_meet(server: Server, broker: holdfast.Broker) -> None:
    await (await broker.queue("jobs")).enqueue(1)
    async with holdfast.connect(server.url, prefix=f"u{os.urandom(6).hex()}") as other:
        assert await other.queues() == []
        assert await (await other.queue("jobs")).dequeue() is None
        await other.uninstall()
    assert (await (await broker.queue("jobs")).stats()).pending == 1


async def test_doctor_says_what_survives(broker: holdfast.Broker) -> None:
    await broker.queue("jobs")
    checks = {check.name: check for check in await broker.store.check()}
    assert checks["server"].detail.startswith("NATS 2.")
    assert "sync_interval" in checks["survives"].detail
    assert (checks["survives"].state, checks["replicas"].state) == ("warn", "warn")


async def test_dead_letter_of_a_named_queue_moves_once(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs", dead_letter="graves", max_attempts=1, retry=Fixed(0))
    await queue.enqueue(1)
    delivery = await queue.dequeue(wait=5)
    assert delivery is not None
    await delivery.fail("broken")
    await delivery.fail("broken")
    assert (await (await broker.queue("graves")).stats()).pending == 1


# ---------------------------------------------------------------------- who may


@pytest.mark.parametrize(
    ("config", "right", "wrong"),
    [
        (f'authorization {{user: anna, password: "{SECRET}"}}', f"anna:{SECRET}@", f"anna:{SECRET}x@"),
        (f'authorization {{token: "{SECRET}"}}', f"{SECRET}@", f"{SECRET}x@"),
    ],
    ids=["password", "token"],
)
async def test_credentials_open_the_store_and_wrong_ones_do_not(config: str, right: str, wrong: str) -> None:
    with Server(config) as server:
        async with holdfast.connect(f"nats://{right}{server.host}") as broker:
            await (await broker.queue("jobs")).enqueue(1)
        for who in (wrong, ""):
            await refused(f"nats://{who}{server.host}", "credentials")


async def refused(url: str, words: str) -> None:
    """A clear error of ours, soon, without the secret anywhere in it."""
    started = time.monotonic()
    with pytest.raises(StoreError, match=words) as error:
        await holdfast.connect(url, connect_timeout=5)
    assert time.monotonic() - started < 8
    shown: list[str] = []
    one: BaseException | None = error.value
    while one is not None:
        shown.append(f"{one!r} {one}")
        one = one.__cause__
    assert SECRET not in " ".join(shown)


async def test_nkey_opens_the_store(tmp_path: Path) -> None:
    nkeys = pytest.importorskip("nkeys")
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    path = tmp_path / "user.nk"
    path.write_bytes(seed)
    stranger = tmp_path / "stranger.nk"
    stranger.write_bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    with Server(f"authorization {{users: [{{nkey: {public}}}]}}") as server:
        async with holdfast.connect(f"{server.url}?nkey={path}") as broker:
            await (await broker.queue("jobs")).enqueue(1)
        await refused(f"{server.url}?nkey={stranger}", "credentials")
    with pytest.raises(ConfigError, match="cannot be read"):
        await holdfast.connect(f"{server.url}?nkey={tmp_path}/absent")


async def test_credentials_file_opens_the_store(tmp_path: Path) -> None:
    pytest.importorskip("nkeys")
    from tests.stores.nats.operator_mode import operator_mode

    config, creds = operator_mode()
    _, others = operator_mode()
    right, wrong = tmp_path / "app.creds", tmp_path / "other.creds"
    right.write_text(creds)
    wrong.write_text(others)
    with Server(config) as server:
        async with holdfast.connect(f"{server.url}?creds={right}") as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue(1)
            assert (await queue.stats()).pending == 1
        await refused(f"{server.url}?creds={wrong}", "credentials")


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of our own for the loopback, and its key."""
    key, made = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(made)]
    subprocess.run(["openssl", "req", *kind, *subject, *files], check=True, capture_output=True)
    return made, key


async def test_tls_is_honoured(tmp_path: Path) -> None:
    made, key = await asyncio.to_thread(certificate, tmp_path)
    with Server(f'tls {{cert_file: "{made}", key_file: "{key}"}}') as server:
        async with holdfast.connect(f"tls://{server.host}?ca={made}") as broker:
            await (await broker.queue("jobs")).enqueue(1)
        with pytest.raises(StoreError):
            await holdfast.connect(f"tls://{server.host}", connect_timeout=3)


async def test_server_without_jetstream_says_so() -> None:
    with Server(jetstream=False) as server:
        await refused(server.url, "JetStream")


@pytest.mark.parametrize(
    "url",
    [
        "nats://",
        "nats://host:port",
        "nats://host/path",
        "nats://host?prefix=a.b",
        "nats://host?prefix=>",
        "nats://h?x=1",
    ],
)
async def test_bad_urls_are_refused_before_any_connection(url: str) -> None:
    with pytest.raises(ConfigError):
        await holdfast.connect(url)
