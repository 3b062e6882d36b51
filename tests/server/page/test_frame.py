"""What holds on every page: it is there, says nothing in script, hides what it must, and knows who looks."""

from __future__ import annotations

import asyncio
import html
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.queue_reports import QueueReport
from tests.server.fixtures import Http
from tests.server.page.conftest import Told
from tests.server.page.story import SCRIPT, fill
from tests.servers.serving import ServerThread

PAGES = (
    *("/", "/queues", "/queues/payments", "/queues/payments?ask=purge", "/queues/emails?ask=settings", "/messages"),
    *(
        f"/queues/payments/messages?state={word}"
        for word in ("ready", "running", "delayed", "retry", "dead", "archive")
    ),
    *("/queues/payments/messages?state=dead&text=declined", "/queues/payments/bulk?verb=replay&state=dead", "/jobs"),
    *("/pipeline", "/audit", "/dead", "/dead?queue=payments", "/schedules", "/schedules/nightly", "/doctor", "/login"),
)
READ = "reader:read:read-token-0123456789"


def text(http: Http, path: str, status: int = 200) -> str:
    answer = http.get(path)
    assert answer.status == status, path
    assert answer.headers["content-type"].startswith("text/html")
    return bytes(answer.body).decode()


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_html_without_script_or_style_in_it(told: Told, path: str) -> None:
    answer = told.http.get(path)
    page = bytes(answer.body).decode()
    assert answer.status == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert page.count("<script") == 1
    assert "<script src=" in page
    assert " style=" not in page
    assert "<img" not in page


def test_hostile_text_stays_text(told: Told) -> None:
    page = text(told.http, f"/queues/payments/messages/{told.ids['dead']}")
    assert SCRIPT not in page
    assert page.count(str(html.escape(SCRIPT)).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")) >= 3
    for path in ("/queues/%3Cscript%3Ex", "/messages?text=%3Cscript%3Ex", "/queues/payments/messages/%3Cscript%3Ex"):
        assert b"<script>x" not in told.http.get(path).body


def test_a_redacted_field_is_never_shown(told: Told) -> None:
    for id in (told.ids["dead"], told.ids["done"]):
        page = text(told.http, f"/queues/payments/messages/{id}")
        assert "hush" not in page
        assert "***" in page


def test_bytes_are_shown_as_hex(told: Told) -> None:
    assert "00000010  10 11 12 13" in text(told.http, f"/queues/raw/messages/{told.ids['binary']}")


def test_what_is_not_there_is_a_page_too(told: Told) -> None:
    assert "there is no queue" in text(told.http, "/queues/nobody", 404)
    assert "one of ready, running" in text(told.http, "/queues/payments/messages?state=odd", 422)
    assert "There is no schedule" in text(told.http, "/schedules/nobody", 404).replace("there is no", "There is no")


def test_files_may_be_kept_and_are_small(told: Told) -> None:
    sizes = []
    for name in ("style.css", "ui.js", "sprite.svg", "mark.svg"):
        answer = told.http.get(f"/static/{name}", Accept_Encoding="gzip")
        assert answer.status == 200
        assert answer.headers["content-encoding"] == "gzip"
        assert "immutable" in answer.headers["cache-control"]
        sizes.append(len(answer.body))
    assert sum(sizes) < 30_000
    assert told.http.get("/static/frame.html").status == 404
    assert told.http.get("/static/..%2Fframe.py").status == 404


def test_read_only_has_no_buttons_and_hides_contents(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    ids = asyncio.run(fill(url))
    with ServerThread(url, read_only=True) as server:
        http = Http(server.address)
        for path in ("/", "/queues/payments?ask=purge", "/dead", "/schedules/nightly"):
            assert 'method="post"' not in text(http, path)
        page = text(http, f"/queues/payments/messages/{ids['dead']}")
        assert "read-only" in page
        assert "amount" not in page
        assert "Not shown to the role read" in page
        for path in ("pause", "bulk", *(f"messages/{ids['dead']}/{verb}" for verb in ("edit", "cancel", "take-back"))):
            assert http.post(f"/queues/payments/{path}").status == 403
        for path in ("/audit", "/jobs", "/queues/payments/bulk?verb=replay&state=dead"):
            assert http.get(path).status == 403
        assert http.get("/doctor").status == 403
    with ServerThread(url, read_only=True, show_payloads=True) as server:
        assert "amount" in text(Http(server.address), f"/queues/payments/messages/{ids['dead']}")


def test_below_a_path_every_link_stays_there(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    asyncio.run(fill(url))
    with ServerThread(url, path="/queues") as server:
        top = server.address.removesuffix("/queues")
        assert Http(top).get("/queues").status == 200  # by a redirect to /queues/
        for path in ("/", "/queues/payments", "/dead", "/schedules"):
            page = text(Http(server.address), path)
            links = [part.split('"')[0] for word in ("href", "src", "action") for part in page.split(f'{word}="')[1:]]
            assert [each for each in links if not each.startswith(("/queues/", "#"))] == []


def test_several_stores_have_a_list_and_pages_each(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/one", f"file://{tmp_path}/two") as server:
        http = Http(server.address)
        assert 'href="/store1/"' in text(http, "/")
        assert "No queues yet" in text(http, "/store0/")
        http.ask("PUT", "/store1/api/v1/queues/letters", {})
        page = text(http, "/store1/")
        assert 'href="/store1/queues/letters"' in page
        assert 'action="/store1/queues/letters/pause"' in page


def test_a_store_that_is_away_says_since_when(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    asyncio.run(fill(url))
    with ServerThread(url) as server:
        http = Http(server.address)
        text(http, "/")
        served = server.serving.application.served[""]

        async def gone() -> list[QueueReport]:
            raise Unavailable("nobody answers")

        look, served.watch._look = served.watch._look, gone
        served.watch.forget()
        page = text(http, "/", 503)
        assert "The store has been away for" in page
        assert "nobody answers" in page
        assert "payments" in page  # as last seen
        served.watch._look = look
        assert "The store has been away" not in text(http, "/")
        assert served.watch.away_since is None
