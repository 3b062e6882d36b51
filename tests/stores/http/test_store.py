"""The http:// store when answers are lost: nothing twice, and what cannot be known is said."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.config import StoreOptions
from holdfast.errors import StoreError, Unavailable, UnknownOutcome
from holdfast.server import seam
from holdfast.server.seam import Seam
from holdfast.stores.http import take_apart, wire
from holdfast.stores.http.client import _MOST_REQUESTS, Client, Unanswered
from holdfast.stores.http.wire import Hello
from tests.servers.bucket import BucketServer
from tests.servers.nats import Server as Nats
from tests.servers.serving import ServerThread


class Cutting:
    """Passes requests on, and cuts the connection instead of answering the next `cuts` of those to `path`."""

    def __init__(self, address: str) -> None:
        self._target = urlsplit(address)
        self.path = b"/append"
        self.cuts = 0
        self.cut = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        try:
            while request := await _message(reader):
                back.write(request)
                answer = await _message(there)  # so that it was carried out
                if self.cut < self.cuts and self.path in request.split(b"\r\n", 1)[0]:
                    self.cut += 1
                    break
                writer.write(answer)
        finally:
            writer.close()
            back.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    return head + await reader.readexactly(int(length[0]) if length else 0)


async def test_an_append_whose_answer_is_lost_is_added_once(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        cutting = Cutting(server.address)
        async with cutting.open() as address, holdfast.connect(address) as broker:
            queue = await broker.queue("jobs")
            cutting.cuts = 3
            ids = await queue.enqueue_many(range(5))
            assert cutting.cut == 3
            assert len(set(ids)) == 5
            assert (await queue.stats()).total == 5


async def test_a_settlement_whose_answer_is_lost_is_repeated(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        cutting = Cutting(server.address)
        async with cutting.open() as address, holdfast.connect(address) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue(1)
            delivery = await queue.dequeue(wait=5)
            assert delivery is not None
            cutting.path, cutting.cuts = b"/settle", 2
            await delivery.complete("done")
            assert (await queue.stats()).completed == 1


async def test_what_may_not_be_repeated_is_unavailable(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        cutting = Cutting(server.address)
        async with cutting.open() as address, holdfast.connect(address) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue(1)
            cutting.path, cutting.cuts = b"/purge", 1
            with pytest.raises(Unavailable):
                await queue.purge()
            assert (await queue.stats()).total == 0


async def test_a_server_that_is_away_is_unknown_until_it_is_back(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        cutting = Cutting(server.address)
        async with cutting.open() as address, holdfast.connect(address, operation_timeout=0.5) as broker:
            queue = await broker.queue("jobs")
            cutting.cuts = 1_000
            with pytest.raises(UnknownOutcome) as caught:
                await queue.enqueue("once")
            cutting.cuts = 0
            [id] = await caught.value.retry()
            assert await queue.status(id) == "pending"
            assert (await queue.stats()).total == 1


async def test_a_store_that_remembers_no_calls_is_exact_while_its_server_lives() -> None:
    with Nats() as nats, ServerThread(nats.url) as server:
        cutting = Cutting(server.address)
        async with cutting.open() as address, holdfast.connect(address) as broker:
            queue = await broker.queue("jobs")
            cutting.cuts = 2
            await queue.enqueue_many([1, 2, 3])
            assert (await queue.stats()).total == 3
            server.serving.application.served[""].id = "another process"
            cutting.cut, cutting.cuts = 0, 1
            with pytest.raises(UnknownOutcome, match="remembers no calls"):
                await _forgetful(server, queue)


async def test_a_call_that_its_server_has_forgotten_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "_REMEMBERED_CALLS", 3)
    with BucketServer() as bucket, ServerThread(bucket.url("jobs")) as server:
        cutting = Cutting(server.address)
        async with (
            cutting.open() as address,
            holdfast.connect(server.address) as others,
            holdfast.connect(address, operation_timeout=0.5) as broker,
        ):
            queue, busy = await broker.queue("jobs"), await others.queue("jobs")
            cutting.cuts = 1_000
            with pytest.raises(UnknownOutcome) as caught:
                await queue.enqueue("once")
            cutting.cuts = 0
            await caught.value.retry()
            assert (await busy.stats()).total == 1
            for number in range(3):
                await busy.enqueue(number)
            with pytest.raises(UnknownOutcome, match="forgotten"):
                await caught.value.retry()
            assert (await busy.stats()).total == 4


async def _forgetful(server: ServerThread, queue: holdfast.Queue[object]) -> None:
    """As after a kill: the server that is asked again knows nothing of the first try."""
    kept = Seam._remembered

    def forget(self: Seam, asked: object, messages: object) -> object:
        self._calls.clear()
        return kept(self, asked, messages)  # type: ignore[arg-type]  # passed on as they are

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Seam, "_remembered", forget)
        await queue.enqueue("who knows")


async def test_another_server_and_another_version_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        with pytest.raises(StoreError, match="404"):
            await holdfast.connect(f"{server.address}/elsewhere", connect_timeout=5)
        hello = Hello(wire.VERSION + 1, "", 0, 100, False)

        async def other(self: Seam, *asked: object) -> Hello:
            return hello

        monkeypatch.setattr(Seam, "_open", other)
        with ServerThread(f"file://{tmp_path}/other") as newer, pytest.raises(StoreError, match="another version"):
            await holdfast.connect(newer.address)


@pytest.mark.parametrize(
    ("url", "place", "ours"),
    [
        ("http://host:8731", "http://host:8731", []),
        ("http://host/jobs/", "http://host/jobs", []),
        ("https://t%40ken@host", "https://host?token=t%40ken", []),
        ("http://me:secret@host:1/x?poll_interval=2", "http://host:1/x?token=secret", [("poll_interval", "2")]),
        ("http://host?token=abc", "http://host?token=abc", []),
    ],
)
def test_urls_are_taken_apart(url: str, place: str, ours: list[tuple[str, str]]) -> None:
    assert take_apart(url, "shown") == (place, ours)


async def test_copies_of_a_served_store_are_made_where_it_lies(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        async with holdfast.connect(server.address) as broker:
            await (await broker.queue("jobs")).enqueue(1)
        for copy in (
            holdfast.backup(server.address, tmp_path / "target"),
            holdfast.move(server.address, tmp_path / "other"),
        ):
            with pytest.raises(holdfast.ConfigError, match="give the URL that `holdfast serve` was given"):
                await copy
        async with holdfast.connect(server.address) as broker:
            assert not (await broker.queues())[0].paused
    assert not (tmp_path / "target").exists()


async def test_a_token_is_never_shown(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store", tokens=("a:read:canary-canary-canary-1",)) as server:
        address = server.address.replace("http://", "http://canary-canary-canary-2@")
        with pytest.raises(StoreError) as caught:
            await holdfast.connect(address)
        assert "canary" not in str(caught.value)
    with pytest.raises(Unavailable) as unreachable:
        await holdfast.connect("http://canary@127.0.0.1:1", connect_timeout=0.3)
    assert "canary" not in str(unreachable.value)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("127.0.0.1:1", "connection refused: no server listens there$"),
        ("localhost:1", "connection refused: no server listens there$"),
        ("no.such.host.invalid", r"unknown host \([^()]+\)$"),
    ],
)
async def test_a_closed_port_or_an_unknown_host_is_said_at_once(host: str, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(holdfast.Unavailable, match=f"^http://{host}: {words}"):
        await holdfast.connect(f"http://{host}")
    assert time.monotonic() - began < 5.0


async def test_many_callers_of_a_server_that_does_not_answer_end_in_time() -> None:
    """Who waits for a connection waits in his own time, and has asked for nothing yet."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as silent:
        host, port = silent.getsockname()
        client = Client(f"http://{host}:{port}", StoreOptions(operation_timeout=0.5))
        began = time.monotonic()
        calls = (client.call("append", wire.encode(("q",))) for _ in range(6 * _MOST_REQUESTS))
        errors = await asyncio.gather(*calls, return_exceptions=True)
        took = time.monotonic() - began
        await client.close()
    found = Counter(map(type, errors))
    assert set(found) == {Unanswered, Unavailable}
    assert found[Unavailable] >= 3 * _MOST_REQUESTS  # some others come to their turn at the end of their time
    assert took < 1.5
