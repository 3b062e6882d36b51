"""Opening a bucket: servers that lie are refused; what cannot be used says so in time, with no key in the text."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator

import pytest

import holdfast
from tests.servers.bucket import LIES, BucketServer
from tests.servers.proxy import Faults, Proxy
from tests.servers.s3 import ABSENT, ELSEWHERE, LIMITED, Server, url

from .fixtures import Place

SECRET = "canary-wrong-secret"
DEADLINE = 3.0  # connect_timeout of these tests
SLACK = 7.0  # a request that is under way is waited for; and the machine may be busy


def said(error: BaseException) -> str:
    """Everything a log could show of it."""
    return "".join(traceback.format_exception(error)) + str(error.__dict__)


async def refused(where: str, kind: type[BaseException]) -> str:
    """The error of opening and using a place, in time and without keys."""
    begun = time.monotonic()
    with pytest.raises(kind) as caught:
        async with holdfast.connect(where, connect_timeout=DEADLINE, operation_timeout=DEADLINE) as broker:
            await (await broker.queue("jobs")).enqueue({"n": 1})
    assert time.monotonic() - begun < DEADLINE + SLACK
    text = said(caught.value)
    for key in (LIMITED[1], SECRET, "canary"):
        assert key not in text
    return str(caught.value)


# ---------------------------------------------------------------------- servers that lie


@pytest.mark.parametrize("lie", LIES)
async def test_a_server_that_lies_is_refused(lie) -> None:
    with BucketServer(lie) as server:
        told = await refused(server.url("jobs"), holdfast.UnsafeStore)
    assert "server" in told


@pytest.mark.parametrize("lie", LIES)
async def test_and_leaves_nothing_behind(lie) -> None:
    with BucketServer(lie) as server:
        await refused(server.url("jobs"), holdfast.UnsafeStore)
        assert list(server.items) == []


async def test_an_honest_one_is_accepted() -> None:
    with BucketServer() as server:
        async with holdfast.connect(server.url("jobs")) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue({"n": 1})
            delivery = await queue.dequeue()
            assert delivery is not None
            assert delivery.value == {"n": 1}
            await delivery.complete()


async def test_a_real_one_is_accepted_time_and_again(s3: Place) -> None:
    for _ in range(5):
        async with holdfast.connect(s3.url) as broker:
            await broker.queue("jobs")


async def test_a_real_one_behind_a_bad_network_is_accepted(s3: Place) -> None:
    """No false refusal: lost replies and conflicts are no lies."""
    faults = Faults(unavailable=0.1, dropped=0.1, conflict=0.1, truncated=0.05)
    with Proxy(s3.server.port, faults, seed=3) as proxy:
        for number in range(8):
            async with holdfast.connect(s3.server.url(f"{s3.prefix}-{number}", endpoint=proxy.endpoint)) as broker:
                await broker.queue("jobs")
        assert proxy.counts.faults.total() > 5


# ---------------------------------------------------------------------- places that cannot be used


async def test_a_missing_bucket(s3_server: Server) -> None:
    told = await refused(s3_server.url("jobs", bucket=ABSENT), holdfast.StoreError)
    assert "no such bucket" in told
    assert ABSENT in told


async def test_wrong_keys(s3_server: Server) -> None:
    told = await refused(s3_server.url("jobs", key=(LIMITED[0], SECRET)), holdfast.StoreError)
    assert "credentials" in told


async def test_a_bucket_of_somebody_else(s3_server: Server) -> None:
    told = await refused(s3_server.url("jobs", bucket=ELSEWHERE), holdfast.StoreError)
    assert "credentials" in told


@pytest.fixture
def deaf() -> Iterator[str]:
    """Somebody listens and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        where = url(endpoint, "jobs", key=(LIMITED[0], SECRET))
        for told in (
            await refused(where, holdfast.Unavailable),
            await refused(f"slatedb+{where}", holdfast.Unavailable),
        ):
            assert "connection refused" in told
            assert "within" not in told  # waiting cannot help


async def test_nobody_answers(deaf: str) -> None:
    await refused(url(deaf, "jobs", key=(LIMITED[0], SECRET)), holdfast.Unavailable)


async def test_always_unavailable() -> None:
    with BucketServer() as server, Proxy(server.port, Faults(unavailable=1.0)) as proxy:
        await refused(server.url("jobs", endpoint=proxy.endpoint), holdfast.Unavailable)
        assert proxy.counts.requests.total() < 100  # it waits between its tries


async def test_plain_http_only_when_asked(s3: Place) -> None:
    told = await refused(s3.url.replace("&allow_http=true", ""), holdfast.ConfigError)
    assert "allow_http" in told


async def test_a_server_that_goes_away_later_is_unavailable_in_time() -> None:
    with BucketServer() as server:
        opened = await holdfast.connect(server.url("jobs"), operation_timeout=DEADLINE)
        queue = await opened.queue("jobs")
        await queue.enqueue({"n": 1})
    begun = time.monotonic()
    with pytest.raises(holdfast.StoreError) as caught:
        await queue.dequeue()
    assert time.monotonic() - begun < DEADLINE + SLACK
    assert "canary" not in said(caught.value)
    await opened.close()
