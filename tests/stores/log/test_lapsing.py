"""Messages that expire where nobody claims: upkeep finds them by the names of their blocks."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.stores.log import names
from holdfast.stores.log.head.state import NEVER
from holdfast.stores.records import Envelope, Settlement, Uniform
from tests.stores.log.log_bench import Bed

END = 30.0


async def lapsed(bed: Bed, ids: list[str]) -> list[tuple[str, str | None]]:
    return [(each.status, each.error) for each in await bed.store.get("q", ids) if each is not None]


async def test_upkeep_ends_what_no_head_has_seen():
    bed = await Bed.made()
    soon = await bed.store.append("q", [Envelope(b"%d" % n, lifetime=END, delay=n % 2 * 99.0) for n in range(500)])
    late = await bed.store.append("q", [Envelope(b"late", lifetime=END + 1.0), Envelope(b"never")])
    bed.clock.advance(END)
    await bed.store.maintain("q")
    assert set(await lapsed(bed, soon)) == {("failed", "expired")}
    assert await lapsed(bed, late) == [("pending", None)] * 2
    stats = await bed.store.stats("q")
    assert (stats.failed, stats.archived, stats.pending, stats.total) == (500, 500, 2, 502)


async def test_upkeep_does_not_rest_while_something_expires():
    bed = await Bed.made()
    [id] = await bed.store.append("q", [Envelope(b"x", lifetime=END, delay=99.0)])
    await bed.store.maintain("q")
    assert "q" not in bed.store._found_idle
    bed.clock.advance(END)
    await bed.store.maintain("q")
    assert await lapsed(bed, [id]) == [("failed", "expired")]
    await bed.store.maintain("q")
    assert "q" in bed.store._found_idle


async def test_retries_that_left_the_head_expire():
    bed = await Bed.made()
    ids = await bed.store.append("q", Uniform([b"x"] * 400, "text/plain", (None, 0, 0.0, None, None, None, None, END)))
    while held := (await bed.store.claim("q", 100, 10.0)).messages:
        done = [Settlement(each.id, each.token, "retry", delay=60.0, error="no") for each in held]
        assert set(await bed.store.settle("q", done)) == {"ok"}
    await bed.flush()
    stored = await bed.store.get("q", [ids[-1]])
    assert stored[0] is not None
    assert (stored[0].status, stored[0].expires) == ("retry", (stored[0].enqueued_at + END))
    assert any(
        "later/" in key and names.lapse_of(key) < NEVER
        for key in await bed.store.space.read(lambda view: view.list("q@"))
    ), "some have left"
    bed.clock.advance(END)
    await bed.store.maintain("q")
    assert set(await lapsed(bed, ids)) == {("failed", "expired")}


async def test_names_tell_when():
    assert names.lapse_of("inbox/255/0123456789abcdef0123456789abcdef-1-0-0-0") == NEVER
    assert names.lapse_of("inbox/255/0123456789abcdef0123456789abcdef-1-0-0-0cx1500") == 1.5
    assert names.lapse_of("inbox/255/0123456789abcdef0123456789abcdefx2500.bundle") == 2.5
    assert names.is_block("inbox/255/0123456789abcdef0123456789abcdefx2500.bundle")


async def test_format_before_refuses_it(monkeypatch: pytest.MonkeyPatch):
    bed = await Bed.made()
    monkeypatch.setattr(type(bed.space), "format", 3)
    for message in (Envelope(b"x", lifetime=END), Envelope(b"x", expires=bed.clock() + END)):
        with pytest.raises(ConfigError, match="holdfast install"):
            await bed.store.append("q", [Envelope(b"plain"), message])
    with pytest.raises(ConfigError, match="holdfast install"):
        await bed.store.append("q", Uniform([b"x"], "text/plain", (None, 0, 0.0, None, None, None, None, END)))
    assert (await bed.store.stats("q")).total == 0
    await bed.store.append("q", Uniform([b"x"], "text/plain", (None, 0, 0.0, None, None, None, None, None)))
    assert (await bed.store.stats("q")).total == 1
