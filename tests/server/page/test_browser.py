"""The page in a real Chromium: every page and action, live numbers, hostile text, what keeps people out, weight."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.causes import cause
from holdfast.server import jobs
from tests.server.page.conftest import Told, apart
from tests.server.page.story import ERROR, fill
from tests.server.page.test_pipeline import read_some
from tests.servers.chromium import browser, serious
from tests.servers.serving import ServerThread

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


SHOTS = os.environ.get("HOLDFAST_TEST_SHOTS")  # a folder for pictures, for those who want to look
WIDTHS = (390, 1024, 1600)
WEIGHT_BYTES = 150_000  # of everything that a visit transfers
PATIENCE_MS = 20_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A tab that remembers complaints: errors of scripts, refusals of the policy, answers from 400 on."""
    with chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as context:
        opened = context.new_page()
        opened.set_default_timeout(PATIENCE_MS)
        complaints: list[str] = []
        opened.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("response", lambda got: complaints.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        yield opened
        assert complaints == []


def pages(told: Told) -> dict[str, str]:
    reason = cause(ERROR.format(1)).fingerprint
    return {
        "overview": "/",
        "queues": "/queues",
        "queue": "/queues/payments",
        "purge": "/queues/payments?ask=purge",
        "settings": "/queues/payments?ask=settings",
        "find": "/messages",
        "filter": "/queues/payments/messages?state=dead&text=declined",
        "bulk": "/queues/payments/bulk?verb=replay&state=dead&text=declined",
        "jobs": "/jobs",
        "take-back": f"/queues/payments/messages/{told.ids['held']}?ask=take-back",
        "edit": f"/queues/payments/messages/{told.ids['dead']}/edit",
        "audit": "/audit",
        "messages": "/queues/payments/messages?state=dead",
        "message": f"/queues/payments/messages/{told.ids['dead']}",
        "held": f"/queues/payments/messages/{told.ids['held']}",
        "binary": f"/queues/raw/messages/{told.ids['binary']}?ask=cancel",
        "dead": "/dead",
        "reason": f"/dead/payments/{reason}?ask=replay",
        "schedules": "/schedules",
        "schedule": "/schedules/nightly",
        "workers": "/workers",
        "pipeline": "/pipeline",
        "doctor": "/doctor",
        "login": "/login",
    }


@pytest.mark.timeout(180)  # all pages, on a busy machine
def test_every_page_lets_everybody_in_and_keeps_text_text(told: Told, page: Page) -> None:
    for name, path in pages(told).items():
        page.emulate_media(color_scheme="light")
        page.goto(told.address + path)
        assert "owned" not in page.title()
        assert page.locator("main img, main script").count() == 0
        assert serious(page) == [], f"{name}, light"
        page.emulate_media(color_scheme="dark")
        assert serious(page, "color-contrast") == [], f"{name}, dark"


@pytest.mark.timeout(180)
def test_no_page_scrolls_sideways(told: Told, page: Page) -> None:
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for name, path in pages(told).items():
            page.goto(told.address + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} at {width}"
            for theme in ("light", "dark") if SHOTS else ():
                page.emulate_media(color_scheme=theme)
                page.screenshot(path=Path(SHOTS or "") / f"{name}-{width}-{theme}.png", full_page=True)
            page.emulate_media(color_scheme="light")


def test_a_visit_weighs_little(told: Told, page: Page) -> None:
    """All files and the heaviest pages, as transferred."""
    sizes: dict[str, int] = {}
    page.on("requestfinished", lambda asked: sizes.update({asked.url: sum(map(asked.sizes().get, KEYS))}))  # type: ignore[arg-type]
    for path in ("/", "/queues/payments", "/dead"):
        page.goto(told.address + path, wait_until="networkidle")
    assert len(sizes) >= 6
    assert 0 < sum(sizes.values()) < WEIGHT_BYTES


KEYS = ("responseBodySize", "responseHeadersSize")


def test_actions_of_a_queue(told: Told, page: Page) -> None:
    page.goto(f"{told.address}/queues/quiet")
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused: nothing more is given out.").wait_for()
    assert "did=" not in page.url  # said once
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("Resumed.").wait_for()
    page.get_by_role("link", name="Change").click()
    page.get_by_label("lease").fill("75")
    page.get_by_label("max_messages").fill("")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The settings are changed").wait_for()
    assert apart(_options(told.url, "quiet")).lease == 75.0
    page.goto(f"{told.address}/queues/emails")
    page.get_by_role("link", name="Purge 120…").click()
    page.get_by_role("heading", name="Remove 120 waiting messages?").wait_for()
    page.get_by_role("button", name="Remove 120 messages").click()
    page.get_by_text("120 waiting messages removed.").wait_for()


async def _options(url: str, name: str) -> holdfast.QueueOptions:
    async with holdfast.connect(url) as broker:
        return (await broker.queue(name)).options


def test_actions_of_messages_and_reasons(told: Told, page: Page) -> None:
    page.goto(told.address)
    page.keyboard.press("/")
    page.keyboard.type(told.ids["waiting"])
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Message …").wait_for()
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 1 message").click()
    page.get_by_text("1 messages cancelled.").wait_for()
    page.goto(f"{told.address}/queues/payments/messages/{told.ids['done']}")
    page.get_by_role("button", name="Replay a copy").click()
    page.get_by_text("1 messages were copied").wait_for()
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Delete 1 message").click()
    page.get_by_text("1 messages deleted.").wait_for()
    page.goto(f"{told.address}/queues/payments/messages/{told.ids['dead']}")
    page.get_by_role("button", name="Replay").click()
    page.get_by_text("1 messages went back").wait_for()
    page.goto(f"{told.address}/dead")
    page.get_by_role("link", name="Replay 11…").click()
    page.get_by_role("button", name="Replay 11 messages").click()
    page.get_by_text("11 messages went back").wait_for()
    page.get_by_role("link", name="Delete 3…").click()
    page.get_by_role("button", name="Delete 3 messages").click()
    page.get_by_text("3 messages deleted.").wait_for()
    page.get_by_text("nothing has failed for good").wait_for()


def test_a_running_message_is_taken_back_and_cancelled(told: Told, page: Page) -> None:
    page.goto(f"{told.address}/queues/payments/messages/{told.ids['held']}")
    page.get_by_role("link", name="Take back…").click()
    page.get_by_role("button", name="Take 1 message back").click()
    page.get_by_text("1 messages taken back").wait_for()
    page.goto(f"{told.address}/queues/payments/messages/{told.ids['held too']}")
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_role("heading", name="Cancel this message while it runs?").wait_for()
    page.get_by_role("button", name="Cancel 1 message").click()
    page.get_by_text("1 messages cancelled.").wait_for()
    page.locator("h1 .pill", has_text="failed").wait_for()


def test_a_message_is_edited_and_replayed(told: Told, page: Page) -> None:
    page.goto(f"{told.address}/queues/payments/messages/{told.ids['done too']}")
    page.get_by_role("link", name="Edit and replay…").click()
    page.get_by_role("textbox", name="Value").fill(
        '{"order": 991, "note": "' + "<script>document.title='owned'</script>" + '"}'
    )
    page.get_by_role("button", name="Replay as written").click()
    page.get_by_text("It is enqueued as you wrote it.").wait_for()
    page.get_by_text('"order": 991').wait_for()
    page.get_by_role("link", name="Edit…").click()
    page.get_by_label("priority").fill("8")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("It is changed, under its id.").wait_for()
    assert "owned" not in page.title()


def test_a_filter_and_everything_that_it_finds(told: Told, page: Page) -> None:
    page.goto(f"{told.address}/queues/bulky/messages")
    page.get_by_label("header").fill("kind=b")
    page.get_by_role("button", name="Filter").click()
    page.get_by_text("30 messages fit of 90 that were looked at").wait_for()
    page.get_by_role("link", name="Cancel all that fit…").click()
    page.get_by_role("heading", name="Cancel 30 messages?").wait_for()
    page.get_by_role("button", name="Cancel 30 messages").click()
    page.get_by_role("heading", name="Cancel: 30 messages done").wait_for()
    page.get_by_role("link", name="bulk jobs").click()
    page.get_by_role("link", name="Cancel in bulky").wait_for()
    page.goto(f"{told.address}/audit")
    page.get_by_text("POST /queues/bulky/bulk").wait_for()


def test_actions_of_a_schedule(told: Told, page: Page) -> None:
    page.goto(f"{told.address}/schedules")
    page.get_by_role("link", name="nightly").click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Trigger now").click()
    page.get_by_text("Its message is enqueued.").wait_for()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Told]:
    """A store that no other test changes."""
    url = f"file://{tmp_path}/own"
    ids = apart(fill(url))
    apart(read_some(url))
    with ServerThread(url) as server:
        yield Told(server, url, ids)


def test_what_the_overview_offers(own: Told, page: Page) -> None:
    page.goto(own.address)
    page.get_by_role("link", name="Replay 12…").click()
    page.get_by_role("button", name="Replay 12 messages").click()
    page.get_by_text("12 messages went back").wait_for()
    page.goto(own.address)
    page.get_by_role("button", name="Pause quiet").click()
    page.get_by_text("Paused: nothing more is given out.").wait_for()


def test_a_long_list_has_pages(own: Told, page: Page) -> None:
    page.goto(f"{own.address}/queues/bulky/messages")
    assert page.locator("main tbody tr").count() == 50
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="From the start").wait_for()
    assert page.locator("main tbody tr").count() == 40


def test_past_slots_are_enqueued_and_a_schedule_is_deleted(own: Told, page: Page) -> None:
    page.goto(f"{own.address}/schedules/nightly")
    page.get_by_role("link", name="Backfill…").click()
    end = datetime.now(UTC)
    for label, at in (("since (UTC)", end - timedelta(days=3)), ("until (UTC)", end)):
        page.get_by_label(label).fill(f"{at:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Show the slots").click()
    page.get_by_role("button", name="Enqueue 3 messages").click()
    page.get_by_text("3 slots have their messages now.").wait_for()
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Delete 1 schedule").click()
    page.get_by_text("The schedule is deleted").wait_for()


def test_a_stream_without_an_owner_gives_back(own: Told, page: Page) -> None:
    page.goto(f"{own.address}/pipeline")
    assert serious(page) == []
    page.set_viewport_size({"width": WIDTHS[0], "height": 720})
    button = page.get_by_role("link", name="Give back 5…")
    place = button.bounding_box()
    assert place is not None
    assert place["x"] + place["width"] <= WIDTHS[0]  # without scrolling the table
    button.click()
    page.get_by_role("button", name="Give back 5 messages").click()
    page.get_by_text("5 messages went back into their queue").wait_for()


def test_a_job_is_stopped(own: Told, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    do = jobs._do

    async def slowly(*asked: Any) -> int:
        await asyncio.sleep(0.5)
        return await do(*asked)

    monkeypatch.setattr(jobs, "PAGE_ROWS", 1)
    monkeypatch.setattr(jobs, "_do", slowly)
    page.goto(f"{own.address}/queues/bulky/bulk?verb=cancel&state=ready")
    assert page.locator(".feed .clip").first.evaluate("each => each.clientWidth") > 100  # the samples can be read
    page.get_by_role("button", name="Cancel 90 messages").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped: what was done stays done.").wait_for()
    page.locator("h1 .pill", has_text="stopped").wait_for()
    assert apart(_waiting(own.url, "bulky")) > 0


async def _waiting(url: str, name: str) -> int:
    async with holdfast.connect(url) as broker:
        return (await (await broker.queue(name)).stats()).pending


def test_numbers_come_by_themselves(told: Told, page: Page) -> None:
    """Work of another process appears without a reload; what was open and focused stays."""
    page.goto(f"{told.address}/queues/quiet")
    page.evaluate("window.mark = 1")
    apart(_add(told.url, "quiet", 7))
    page.get_by_text("7 ready, 0 running").wait_for()
    assert page.evaluate("window.mark") == 1
    assert page.locator("#live").inner_text() == "live"


async def _add(url: str, name: str, count: int) -> None:
    async with holdfast.connect(url) as broker:
        await (await broker.queue(name)).enqueue_many(list(range(count)))


def test_an_empty_store_fills_itself_and_a_lost_server_is_told(chromium: Browser, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        with ServerThread(url) as server:
            page.goto(server.address)
            page.get_by_role("heading", name="No queues yet").wait_for()
            assert serious(page) == []
            apart(_add(url, "first", 1))
            page.get_by_role("heading", name="All is well").wait_for()
        page.get_by_text("reconnecting").wait_for()


def test_keys_and_theme(told: Told, page: Page) -> None:
    page.goto(told.address)
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.className") == "name"
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_logging_in(chromium: Browser, tmp_path: Path) -> None:
    tokens = ("ops:operate:operate-token-0123456789",)
    with ServerThread(f"file://{tmp_path}/store", tokens=tokens) as server, chromium.new_context() as context:
        page = context.new_page()
        page.goto(f"{server.address}/doctor")
        page.get_by_label("Token").fill("wrong-token-0123456789")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("There is no such token.").wait_for()
        page.get_by_label("Token").fill("operate-token-0123456789")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("the same checks as").wait_for()
        assert page.evaluate("document.cookie") == ""  # no script can read it
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("heading", name="Log in").wait_for()
        page.goto(server.address)
        page.get_by_role("heading", name="Log in").wait_for()
