"""Who is let in: no token, wrong token, wrong role, foreign origin, wrong host, too large."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.server.settings import ServerSettings
from holdfast.server.tokens import Tokens
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

ROLES = ("read", "work", "operate", "admin")
TOKENS = {role: f"{role}-token-0123456789" for role in ROLES}
SOME = "some-token-0123456789"
LIMIT = 100_000

# What each role is the least for.
NEEDS = [
    ("read", "GET", "/api/v1/queues", None),
    ("read", "GET", "/api/v1/queues/q", None),
    ("read", "GET", "/api/v1/stats", None),
    ("read", "GET", "/api/v1/consumers", None),
    ("read", "GET", "/api/v1/queues/q/dead", None),
    ("read", "GET", "/metrics", None),
    ("read", "GET", "/schema", None),
    ("work", "POST", "/api/v1/queues/q/messages", {"value": 1}),
    ("work", "POST", "/api/v1/queues/q/claims", {}),
    ("work", "POST", "/api/v1/queues/q/settlements", {"settlements": []}),
    ("operate", "POST", "/api/v1/queues/q/pause", None),
    ("operate", "POST", "/api/v1/queues/q/resume", None),
    ("operate", "POST", "/api/v1/queues/q/purge", None),
    ("operate", "POST", "/api/v1/queues/q/cleanup", None),
    ("operate", "POST", "/api/v1/queues/q/dead/replay", {}),
    ("operate", "POST", "/api/v1/queues/q/archive/purge", None),
    ("operate", "GET", "/api/v1/doctor", None),
    ("admin", "PUT", "/api/v1/queues/q", {}),
    ("admin", "PUT", "/api/v1/queues/other", {}),
    ("admin", "DELETE", "/api/v1/queues/other", None),
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    lines = [*(f"{role}:{role}:{token}" for role, token in TOKENS.items()), f"some:admin:q,mail-*:{SOME}"]
    url = f"file://{tmp_path_factory.mktemp('guarded')}/store"
    with ServerThread(url, tokens=tuple(lines), body_bytes=LIMIT, host_names=("queue.example",)) as server:
        _with(server, "admin").queue("q")
        yield server


def _with(server: ServerThread, role: str | None, **headers: str) -> Http:
    token = {} if role is None else {"Authorization": f"Bearer {TOKENS.get(role, role)}"}
    return Http(server.address, **token, **headers)


@pytest.mark.parametrize("role", [None, "read", "work", "operate", "admin", "a wrong one"])
def test_every_route_needs_its_role(guarded: ServerThread, role: str | None) -> None:
    for least, method, path, body in NEEDS:
        answer = _with(guarded, role).ask(method, path, body)
        if role not in ROLES:
            assert (answer.status, answer.headers["www-authenticate"][:6]) == (401, "Bearer"), path
        elif ROLES.index(role) < ROLES.index(least):
            assert answer.status == 403, path
        else:
            assert answer.status in (200, 201), (path, answer.body)


@pytest.mark.parametrize("verb", ["append", "claim", "settle", "purge", "uninstall", "create_queue"])
def test_the_seam_needs_roles_too(guarded: ServerThread, verb: str) -> None:
    path = f"/seam/v1/{verb}"
    assert _with(guarded, None).ask("POST", path, raw=b"\x90").status == 401
    assert _with(guarded, "read").ask("POST", path, raw=b"\x90").status == 403
    bad = _with(guarded, "admin").ask("POST", path, raw=b"\xc1")
    assert bad.status == 422


def test_health_is_open_and_nothing_else(guarded: ServerThread) -> None:
    stranger = _with(guarded, None)
    assert [stranger.get(path).status for path in ("/health/live", "/health/ready")] == [200, 200]
    assert [stranger.get(path).status for path in ("/schema", "/metrics", "/", "/nope")] == [401] * 4


def test_a_token_for_some_queues_sees_no_others(guarded: ServerThread) -> None:
    _with(guarded, "admin").queue("hidden")
    some = _with(guarded, SOME)
    assert some.post("/api/v1/queues/q/messages", {"value": 1}).status == 201
    assert [each["name"] for each in some.get("/api/v1/queues").body] == ["q"]
    assert list(some.get("/api/v1/stats").body) == ["q"]
    assert _with(guarded, "work").post("/api/v1/queues/hidden/messages", {"value": 1}).status == 201
    assert b'"hidden"' in _with(guarded, "read").get("/metrics").body
    assert b"hidden" not in some.get("/metrics").body
    assert b'holdfast_messages_enqueued_total{queue="q"}' in some.get("/metrics").body
    assert some.get("/api/v1/queues/hidden").status == 403
    assert some.ask("PUT", "/api/v1/queues/mail-1", {}).status == 200
    with holdfast.sync.connect(guarded.address.replace("http://", f"http://{SOME}@")) as broker:
        assert {info.name for info in broker.queues()} == {"mail-1", "q"}
        with pytest.raises(holdfast.StoreError, match="other queues"):
            broker.queue("hidden")
        with pytest.raises(holdfast.StoreError, match="other queues"):
            broker.uninstall()


def test_payloads_are_hidden_from_the_role_read(guarded: ServerThread) -> None:
    [id] = (
        _with(guarded, "work")
        .post("/api/v1/queues/q/messages", {"value": "canary", "headers": {"a": "canary"}})
        .body["ids"]
    )
    hidden = _with(guarded, "read").get(f"/api/v1/queues/q/messages/{id}")
    assert "canary" not in str(hidden.body)
    assert hidden.body["id"] == id
    assert _with(guarded, "work").get(f"/api/v1/queues/q/messages/{id}").body["value"] == "canary"
    with holdfast.sync.connect(guarded.address.replace("http://", f"http://{TOKENS['read']}@")) as broker:
        record = broker.queue("q", create=False).get(id)
        assert record is not None
        assert (record.value, record.headers) == (None, {})


def test_writes_from_foreign_pages_are_refused(guarded: ServerThread) -> None:
    path, body = "/api/v1/queues/q/messages", {"value": 1}
    host = urlsplit(guarded.address).netloc
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://{host}.evil.example"},
        {"Origin": f"http://{host}@evil.example"},
        {"Origin": "http://["},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert _with(guarded, "work", **headers).post(path, body).status == 403, headers
    for headers in ({"Origin": f"http://{host}"}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}):
        assert _with(guarded, "work", **headers).post(path, body).status == 201, headers
    assert _with(guarded, "read", Origin="https://evil.example").get("/api/v1/queues").status == 200


def test_only_known_hosts_are_answered(guarded: ServerThread) -> None:
    port = urlsplit(guarded.address).port
    known = ["localhost", f"localhost:{port}", f"127.0.0.1:{port}", "[::1]:80", "queue.example", "Queue.Example:443"]
    unknown = ["evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "169.254.169.254"]
    for host in known:
        assert _with(guarded, "read", Host=host).get("/health/live").status == 200, host
    for host in unknown:
        assert _with(guarded, "read", Host=host).get("/health/live").status == 421, host


def test_bodies_beyond_the_limit_are_refused(guarded: ServerThread) -> None:
    path, client = "/api/v1/queues/q/messages", _with(guarded, "work")
    assert client.ask("POST", path, raw=b" " * (LIMIT + 1)).status == 413
    bomb = gzip.compress(b" " * (100 * LIMIT))
    assert len(bomb) < LIMIT
    assert client.ask("POST", path, raw=bomb, content_encoding="gzip").status == 413
    assert client.ask("POST", "/seam/v1/append", raw=b" " * (LIMIT + 1)).status == 413


def test_packed_bodies_are_whole(guarded: ServerThread) -> None:
    client, whole = _with(guarded, "work"), gzip.compress(b'{"value": 1}  ')
    for raw in (whole[:-1], whole[:-8], whole[:5], whole + b"more", whole + whole, b"no gzip"):
        answer = client.ask("POST", "/api/v1/queues/q/messages", raw=raw, content_encoding="gzip")
        assert (answer.status, answer.body["title"]) == (400, "bad gzip"), raw
    assert client.ask("POST", "/api/v1/queues/q/messages", raw=whole, content_encoding="gzip").status == 201


def test_a_body_without_a_length_is_limited_too(guarded: ServerThread) -> None:
    connection = http.client.HTTPConnection(urlsplit(guarded.address).netloc, timeout=30)
    connection.putrequest("POST", "/api/v1/queues/q/messages")
    connection.putheader("Authorization", f"Bearer {TOKENS['work']}")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    try:
        for _ in range(20):
            connection.send(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        connection.send(b"0\r\n\r\n")
    except OSError:
        pass  # it was refused before we were done
    assert connection.getresponse().status == 413
    connection.close()


def test_answers_tell_browsers_to_be_careful(guarded: ServerThread) -> None:
    for path in ("/health/live", "/api/v1/queues", "/nope"):
        headers = _with(guarded, "read").get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_read_only_means_looking_is_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"file://{tmp_path_factory.mktemp('read')}/store"
    with holdfast.sync.connect(url) as broker:
        broker.queue("q")
    with ServerThread(url, read_only=True) as server:
        client = Http(server.address)
        for least, method, path, body in NEEDS:
            assert (client.ask(method, path, body).status == 403) is (least != "read"), path


def test_an_open_address_needs_tokens() -> None:
    with pytest.raises(ConfigError, match="token"):
        ServerSettings().check("0.0.0.0")
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        ServerSettings().check(host)
    ServerSettings(tokens=Tokens(["a:read:0123456789abcdef"])).check("0.0.0.0")
    with pytest.raises(ConfigError, match="path"):
        ServerSettings(path="queues").check("127.0.0.1")
