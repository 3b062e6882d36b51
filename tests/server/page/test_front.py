"""Logging in with a token, staying in, and going."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from holdfast.server.tokens import SESSION_S, Tokens
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

TOKENS = ("ops:operate:operate-token-0123456789", "some:admin:mail-*:some-token-0123456789")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(f"file://{tmp_path_factory.mktemp('door')}/store", tokens=TOKENS) as server:
        admin = Http(server.address, Authorization="Bearer some-token-0123456789")
        assert admin.ask("PUT", "/api/v1/queues/mail-in", {}).status == 200
        yield server


def ask(
    server: ServerThread, method: str, path: str, form: dict[str, str] | None = None, **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=30)
    named = {"accept": "text/html", "content-type": "application/x-www-form-urlencoded", **headers}
    connection.request(method, path, urlencode(form or {}), named)
    answer = connection.getresponse()
    answer.body = answer.read().decode()  # type: ignore[attr-defined]  # for the tests below
    return answer


def log_in(server: ServerThread, token: str, wanted: str = "/") -> http.client.HTTPResponse:
    return ask(server, "POST", "/login", {"token": token, "next": wanted})


def test_a_browser_without_a_token_is_asked_for_one(guarded: ServerThread) -> None:
    answer = ask(guarded, "GET", "/queues/mail-in?ask=purge")
    assert (answer.status, answer.headers["location"]) == (303, "/login?next=/queues/mail-in%3Fask%3Dpurge")
    assert ask(guarded, "GET", "/", accept="application/json").status == 401
    assert ask(guarded, "POST", "/queues/mail-in/pause").status == 401
    assert ask(guarded, "GET", "/login").status == 200
    assert ask(guarded, "GET", "/static/style.css").status == 200


def test_a_token_opens_and_the_cookie_is_not_the_token(guarded: ServerThread) -> None:
    answer = log_in(guarded, "operate-token-0123456789", "/queues")
    cookie = answer.headers["set-cookie"]
    assert (answer.status, answer.headers["location"]) == (303, "/queues")
    assert "operate-token" not in cookie
    assert all(word in cookie.lower() for word in ("httponly", "samesite=strict", "path=/"))
    kept = cookie.split(";")[0]
    page = ask(guarded, "GET", "/queues", cookie=kept)
    assert page.status == 200
    assert "mail-in" in page.body  # type: ignore[attr-defined]
    assert ask(guarded, "POST", "/queues/mail-in/pause", cookie=kept).status == 303
    assert ask(guarded, "POST", "/queues/mail-in/resume", cookie=kept, origin="http://evil.example").status == 403
    assert ask(guarded, "POST", "/queues/mail-in/resume", cookie=kept, origin="null").status == 403
    own = {"origin": "null", "sec-fetch-site": "same-origin"}  # what browsers send where no referrer is sent
    assert ask(guarded, "POST", "/queues/mail-in/resume", cookie=kept, **own).status == 303
    assert ask(guarded, "POST", "/queues/mail-in/settings", cookie=kept).status == 403  # needs admin
    gone = ask(guarded, "POST", "/logout", cookie=kept)
    assert "max-age=0" in gone.headers["set-cookie"].lower()


def test_a_wrong_token_is_told_and_sets_nothing(guarded: ServerThread) -> None:
    answer = log_in(guarded, "wrong-token-0123456789")
    assert answer.status == 401
    assert "There is no such token" in answer.body  # type: ignore[attr-defined]
    assert answer.headers["set-cookie"] is None
    assert ask(guarded, "GET", "/", cookie="holdfast=1999999999.0000").status == 303
    assert ask(guarded, "GET", "/", cookie="holdfast=\xff.\xff").status == 303


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example", "/\\evil.example", "evil", "/a\nb: c"])
def test_after_logging_in_one_stays_here(guarded: ServerThread, wanted: str) -> None:
    assert log_in(guarded, "operate-token-0123456789", wanted).headers["location"] == "/"


def test_a_token_for_some_queues_sees_no_others(guarded: ServerThread) -> None:
    operate = log_in(guarded, "operate-token-0123456789").headers["set-cookie"].split(";")[0]
    some = log_in(guarded, "some-token-0123456789").headers["set-cookie"].split(";")[0]
    admin = Http(guarded.address, Authorization="Bearer some-token-0123456789")
    assert admin.ask("PUT", "/api/v1/queues/other", {}).status == 403
    assert ask(guarded, "GET", "/queues/other", cookie=some).status == 403
    assert ask(guarded, "GET", "/queues/mail-in", cookie=some).status == 200
    assert ask(guarded, "GET", "/queues/mail-in", cookie=operate).status == 200


def test_sessions_end_in_time_and_with_their_token() -> None:
    now, tokens = time.time(), Tokens(TOKENS)
    kept = tokens.session("operate-token-0123456789", now)
    found = tokens.find_session(kept, now + SESSION_S / 2)
    assert found is not None
    assert found.name == "ops"
    assert tokens.find_session(kept, now + SESSION_S + 1) is None
    assert Tokens(TOKENS[1:]).find_session(kept, now) is None
    until, _, signature = kept.partition(".")
    assert tokens.find_session(f"{int(until) + 1}.{signature}", now) is None
    for bad in ("", ".", "x.y", f"{until}.", f"{'9' * 5000}.{signature}"):
        assert tokens.find_session(bad, now) is None


def test_a_store_cannot_be_called_like_a_page(tmp_path: Path) -> None:
    from holdfast.errors import ConfigError
    from holdfast.server.application import Application
    from holdfast.server.settings import ServerSettings

    made = Application({}, ServerSettings())
    with pytest.raises(ConfigError, match="that is a page"):
        made.add("static", None)  # type: ignore[arg-type]  # refused before it is looked at
