"""From the start to the end: what is acknowledged stays, whoever waits is answered, a kill loses nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.testing.contract.base import eventually
from tests.server.fixtures import Http
from tests.servers.serving import ServerProcess, ServerThread


@pytest.mark.timeout(120)
def test_sigterm_answers_those_who_wait_and_exits_with_zero(tmp_path: Path) -> None:
    with ServerProcess(f"file://{tmp_path}/store") as server:
        http = Http(server.address)
        queue = http.queue("jobs")
        answers: list[object] = []
        waiting = threading.Thread(target=lambda: answers.append(http.post(f"{queue}/claims", {"wait": 50}).body))
        waiting.start()
        sent = threading.Thread(target=lambda: [http.post(f"{queue}/pause")])
        sent.start()
        sent.join()
        assert server.stop() == 0
        waiting.join(20)
        assert answers == [{"deliveries": []}]


@pytest.mark.timeout(120)
async def test_clients_go_on_by_themselves_when_the_server_is_killed(tmp_path: Path) -> None:
    with ServerProcess(f"file://{tmp_path}/store") as server:
        async with holdfast.connect(server.address) as broker:
            queue = await broker.queue("jobs")
            sending = [asyncio.create_task(queue.enqueue_many([n] * 10)) for n in range(40)]
            await asyncio.sleep(0.02)
            await asyncio.to_thread(server.kill)
            late = [asyncio.create_task(queue.enqueue(n)) for n in range(5)]
            await asyncio.to_thread(server.start)
            ids = [id for batch in await asyncio.gather(*sending) for id in batch] + await asyncio.gather(*late)
            assert len(set(ids)) == 405
            assert (await queue.stats()).total == 405


@pytest.mark.timeout(120)
def test_an_idempotency_key_is_known_after_a_kill(tmp_path: Path) -> None:
    with ServerProcess(f"file://{tmp_path}/store") as server:
        http = Http(server.address)
        queue = http.queue("jobs")
        first = http.post(f"{queue}/messages", {"value": 1}, Idempotency_Key="k").body
        server.kill()
        server.start()
        assert http.post(f"{queue}/messages", {"value": 1}, Idempotency_Key="k").body == first
        assert http.post(f"{queue}/messages", {"value": 2}, Idempotency_Key="k").status == 422
        assert http.get(queue).body["stats"]["total"] == 1


async def test_a_client_that_goes_gives_up_its_claim(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        http = Http(server.address)
        queue = await asyncio.to_thread(http.queue, "jobs")
        for path in (f"{queue}/claims", "/seam/v1/claim"):
            await asyncio.to_thread(_ask_and_go, server, path)
        await asyncio.to_thread(http.post, f"{queue}/messages", {"value": 1})
        stats = (await asyncio.to_thread(http.get, queue)).body["stats"]
        assert (stats["pending"], stats["processing"]) == (1, 0)


def _ask_and_go(server: ServerThread, path: str) -> None:
    """Begin to wait for a message, and close the connection."""
    import msgspec

    body = (
        msgspec.msgpack.encode(("jobs", 1, 60.0, 50.0, None)) if "seam" in path else json.dumps({"wait": 50}).encode()
    )
    netloc = urlsplit(server.address).netloc
    served = server.serving.application.served[""]
    with socket.create_connection(netloc.split(":"), timeout=10) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        server.inside(eventually(lambda: served._waits == 1, "the wait"))
    server.inside(eventually(lambda: served._waits == 0, "the end of the wait"))


def test_several_stores_and_a_path(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/a", f"file://{tmp_path}/b", path="/queues") as server:
        assert server.address.endswith("/queues")
        Http(f"{server.address}/store0").queue("of-a")
        assert Http(f"{server.address}/store1").get("/api/v1/queues").body == []
        assert Http(f"{server.address}/store0").get("/schema").status == 200
        with holdfast.sync.connect(f"{server.address}/store0") as broker:
            assert [info.name for info in broker.queues()] == ["of-a"]
        assert Http(server.address.removesuffix("/queues")).get("/store0/api/v1/queues").status == 404


def test_the_application_can_be_mounted() -> None:
    """As ASGI: nothing but a broker and `app`."""

    async def main() -> int:
        async with holdfast.connect("memory://") as broker:
            application = holdfast.server.app(broker)
            await broker.queue("jobs")
            sent: list[dict[str, object]] = []

            async def receive() -> dict[str, object]:
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message: dict[str, object]) -> None:
                sent.append(message)

            scope = {
                "type": "http", "method": "GET", "path": "/api/v1/queues", "raw_path": b"/api/v1/queues",
                "query_string": b"", "headers": [(b"host", b"localhost")], "http_version": "1.1", "scheme": "http",
                "server": ("localhost", 80), "client": ("127.0.0.1", 1), "root_path": "", "extensions": {},
            }  # fmt: skip
            await application(scope, receive, send)
            assert json.loads(sent[1]["body"])[0]["name"] == "jobs"  # type: ignore[arg-type]  # bytes
            return int(sent[0]["status"])  # type: ignore[call-overload]  # a number

    import holdfast.server

    assert asyncio.run(main()) == 200
