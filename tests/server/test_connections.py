"""Clients that are too slow are cut off; those who wait for us are not."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.server import connections
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

SLOW_S = 0.3
PATIENCE_S = 30.0
POST = b"POST /api/v1/queues/q/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    monkeypatch.setattr(connections, "SLOW_S", SLOW_S)
    with ServerThread(f"file://{tmp_path}/store") as server:
        Http(server.address).queue("q")
        yield server


def _opened(server: ServerThread) -> socket.socket:
    place = urlsplit(server.address)
    return socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)


def _is_cut(connection: socket.socket, trickle: Callable[[], bytes] = lambda: b"") -> bool:
    """Whether the other end is gone before our patience is."""
    end = time.monotonic() + PATIENCE_S
    connection.settimeout(SLOW_S / 10)
    while time.monotonic() < end:
        try:
            connection.sendall(trickle())
            if not connection.recv(65536):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_who_asks_nothing_is_cut(server: ServerThread) -> None:
    with _opened(server) as silent:
        assert _is_cut(silent)


def test_who_never_ends_a_head_is_cut_although_it_sends(server: ServerThread) -> None:
    with _opened(server) as slow:
        slow.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert _is_cut(slow, lambda: b"x")


def test_who_keeps_its_body_back_is_cut(server: ServerThread) -> None:
    with _opened(server) as slow:
        slow.sendall(POST % (b"messages", 100) + b'{"value": ')
        assert _is_cut(slow)


def test_who_does_not_read_its_answer_is_cut(server: ServerThread) -> None:
    large = "x" * 1_000_000
    http = Http(server.address)
    for _ in range(16):
        assert http.post("/api/v1/queues/q/messages", {"value": large}).status == 201
    with _opened(server) as deaf:
        deaf.sendall(b"GET /api/v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
        among = server.serving._server.server_state.connections
        _eventually(lambda: any(each.flow.write_paused for each in set(among)), "the answer is too large to be sent")
        _eventually(lambda: not any(each.flow.write_paused for each in set(among)), "nobody cut it")


def _eventually(is_so: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, otherwise
        time.sleep(SLOW_S / 10)


def test_who_waits_for_a_message_is_not_cut(server: ServerThread) -> None:
    body = b'{"limit": 1, "wait": %.1f}' % (6 * SLOW_S)
    with _opened(server) as waiting:
        waiting.sendall(POST % (b"claims", len(body)) + body)
        answered = b""
        while not answered.endswith(b"}"):
            came = waiting.recv(65536)
            assert came, "it was cut"
            answered += came
        assert answered.startswith(b"HTTP/1.1 200 ")
        assert answered.endswith(b'{"deliveries":[]}')


def test_odd_requests_are_answered(server: ServerThread) -> None:
    """With what belongs to the request, never with an error of ours."""
    for head, statuses in (
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 404)),
        (b"GET http://evil.example/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", (200,)),
        (b"GET /seam/v1/open HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
         b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", (403, 404)),
        (b"POST /health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", (400,)),
    ):  # fmt: skip
        with _opened(server) as odd:
            odd.sendall(head)
            assert int(odd.recv(65536).split()[1]) in statuses, head
