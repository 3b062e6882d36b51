"""Why a store does not open: each cause is its own sentence, at once where waiting cannot help."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import holdfast
from holdfast.config import StoreOptions
from holdfast.errors import StoreError, Unavailable
from holdfast.stores.nats import open_nats
from holdfast.stores.nats.fast_reader import FastClient
from holdfast.stores.nats.faults import Nobody
from holdfast.stores.nats.store import NatsStore
from tests.servers.nats import Server, free_port

AT_ONCE = 3.0  # seconds, on a crowded machine; `connect_timeout` is 30


async def refused(url: str, words: str, *, kind: type[StoreError] = StoreError, seconds: float = AT_ONCE) -> str:
    started = time.monotonic()
    with pytest.raises(kind, match=words) as error:
        await holdfast.connect(url)
    assert time.monotonic() - started < seconds
    return str(error.value)


async def test_closed_port_is_told_at_once() -> None:
    port = free_port()
    told = await refused(f"nats://anna:secret@127.0.0.1:{port}", "connection refused", kind=Unavailable)
    assert f"127.0.0.1:{port}" in told
    assert "secret" not in told
    await refused(f"nats://localhost:{free_port()}", "connection refused", kind=Unavailable)
    await refused(f"nats://127.0.0.1:{free_port()},127.0.0.1:{free_port()}", "connection refused", kind=Unavailable)


async def test_unknown_host_is_told_at_once() -> None:
    await refused("nats://no-such-host.invalid", "unknown host: no-such-host.invalid", kind=Unavailable)


async def test_one_server_of_several_is_enough(server: Server) -> None:
    async with holdfast.connect(f"nats://127.0.0.1:{free_port()},{server.host}") as broker:
        assert await broker.queues() == []


async def test_wrong_password_and_missing_jetstream_are_told_at_once() -> None:
    with Server('authorization {user: anna, password: "right"}') as server:
        await refused(f"nats://anna:wrong@{server.host}", "refused the credentials")
    with Server(jetstream=False) as server:
        await refused(server.url, "no JetStream")


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        ("publish: [jobs.x]", r"may not publish to '\$js\.api"),
        ('subscribe: ["_INBOX.>"]', r"may not subscribe to 'holdfast\._\.note"),
        ('subscribe: ["holdfast._.note.*"]', "may not subscribe to '_inbox"),
    ],
    ids=["no API", "no notes", "no answers"],
)
async def test_missing_rights_are_told_at_once(rights: str, words: str) -> None:
    users = f'users: [{{user: anna, password: "x", permissions: {{{rights}}}}}]'
    with Server(f"authorization {{{users}}}") as server:
        await refused(f"nats://anna:x@{server.host}", words)


@asynccontextmanager
async def of_version(server: Server, version: str) -> AsyncIterator[str]:
    """The same server, but that it says to be of another version."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, greets: bool) -> None:
        while data := await reader.read(65536):
            if greets:
                data, greets = re.sub(rb'"version":"[^"]*"', b'"version":"%b"' % version.encode(), data), False
            writer.write(data)
            await writer.drain()
        writer.close()

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pump(reader, outer, greets=False), pump(inner, writer, greets=True))

    relay = await asyncio.start_server(passed_on, "127.0.0.1", 0)
    async with relay:
        yield f"nats://127.0.0.1:{relay.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("version", ["2.9.25", "2.10.29", "2.11.4"])
async def test_older_server_is_refused(server: Server, version: str) -> None:
    async with of_version(server, version) as url:
        await refused(url, f"NATS {re.escape(version)}, and Holdfast needs 2.12 or newer")


async def test_oldest_supported_server_opens(server: Server) -> None:
    async with of_version(server, "2.12.0") as url, holdfast.connect(url) as broker:
        assert await broker.queues() == []


async def test_opening_ends_though_the_driver_ignores_its_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = asyncio.Event()

    async def deaf(*_args: object, **_options: object) -> None:
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass

    monkeypatch.setattr(FastClient, "connect", deaf)
    started = time.monotonic()
    with pytest.raises(Unavailable, match="no connection within 1 s"):
        await asyncio.wait_for(open_nats("nats://127.0.0.1:1", StoreOptions(connect_timeout=1)), 10)
    assert time.monotonic() - started < 2
    let_go.set()
    from holdfast.stores.nats import connecting

    await asyncio.wait(set(connecting._letting_go), timeout=5)
    assert not connecting._letting_go


async def test_a_read_waits_for_a_stream_that_a_restarted_server_does_not_serve_yet(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        await broker.queue("jobs")
        store = broker.store
        assert isinstance(store, NatsStore)
        connection = store.parts("jobs").partition.connection
        body = {"seq": 1, "next_by_subj": "late.>", "batch": 10}
        connection._up_since = time.monotonic()  # as after a reconnect
        reading = asyncio.create_task(connection.collect("DIRECT.GET.late", body))
        await asyncio.sleep(0.3)
        await connection.api("STREAM.CREATE.late", {"name": "late", "subjects": ["late.>"], "allow_direct": True})
        assert await asyncio.wait_for(reading, 10) == []
        connection._up_since = 0.0  # no reconnect of late: then it is gone
        with pytest.raises(Nobody):
            await connection.collect("DIRECT.GET.gone", body)
