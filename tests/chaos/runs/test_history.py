"""The short form of the run `history` on every store; that on a folder is one of `test_runs.py`'s."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from chaos.runs import RUNS
from chaos.runs.history import STORES, history
from chaos.verdict import lines
from tests.servers.bucket import BucketServer
from tests.servers.proxy import Faults, Proxy
from tests.servers.s3 import driver

[SHORT] = [run.short for run in RUNS if run.name == "history"]
PLACES = [(store, 1) for store in STORES if store != SHORT.store] + [("s3", 4)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("store", "shards"), PLACES)
async def test_short_form(store: str, shards: int) -> None:
    verdict = await history(msgspec.structs.replace(SHORT, store=store, shards=shards))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.kills > 0
    assert verdict.acknowledged > 0


def test_a_slow_list_shows_what_was_there_when_it_was_asked_for() -> None:
    with BucketServer() as bucket, Proxy(bucket.port, Faults(slow_lists=1.0, delay=0.5)) as proxy:
        slow, fast = driver(proxy.endpoint), driver(bucket.endpoint)
        fast.put("old", b"x")
        seen: list[str] = []
        listing = threading.Thread(target=lambda: seen.extend(each["path"] for each in slow.list().collect()))
        listing.start()
        while not proxy.counts.faults["slow list"]:
            assert listing.is_alive()
        time.sleep(0.1)  # the server is asked at once, only the answer is slow
        fast.put("new", b"x")
        listing.join(10)
        assert seen == ["old"]
        assert proxy.counts.faults == {"slow list": 1}
