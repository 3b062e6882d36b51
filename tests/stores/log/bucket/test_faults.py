"""What goes wrong at opening: a clear error in time, without the credentials."""

from __future__ import annotations

import logging
import time
import traceback

import pytest

import holdfast
from holdfast.errors import ConfigError, StoreError, Unavailable, UnsafeStore
from tests.servers import s3 as servers
from tests.servers.bucket import BucketServer
from tests.stores.log.bucket.fixtures import Place

AT_ONCE = 10.0  # seconds, on a busy machine; `connect_timeout` is 30
CANARY = ("AKCANARYID", "canary-secret-of-nobody")


async def refusal(url: str, **options: float) -> BaseException:
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        async with holdfast.connect(url, connect_timeout=3, operation_timeout=3, **options) as broker:
            await broker.queues()
    assert time.monotonic() - started < 9
    return caught.value


def assert_silent(error: BaseException, log: pytest.LogCaptureFixture) -> None:
    told = "".join(traceback.format_exception(error)) + repr(error) + log.text
    assert not any(secret in told for secret in CANARY)


async def test_wrong_keys(s3: Place, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    error = await refusal(servers.url(s3.server.endpoint, key=CANARY))
    assert "refuses our credentials" in str(error)
    assert_silent(error, caplog)


@pytest.mark.parametrize("engine", ["", "slatedb+"])
@pytest.mark.parametrize(
    ("endpoint", "sentence"),
    [("http://127.0.0.1:1", "connection refused"), ("http://no-such-host.invalid", "unknown host")],
)
async def test_nobody_there_is_said_at_once(
    engine: str, endpoint: str, sentence: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    started = time.monotonic()
    with pytest.raises(Unavailable, match=sentence) as caught:
        await holdfast.connect(engine + servers.url(endpoint, key=CANARY))
    assert time.monotonic() - started < AT_ONCE
    assert_silent(caught.value, caplog)


@pytest.mark.parametrize("engine", ["", "slatedb+"])
async def test_a_bucket_that_can_only_be_read_is_refused_at_once(engine: str):
    with BucketServer("read-only") as server:
        started = time.monotonic()
        with pytest.raises(StoreError, match="can be read but not written") as caught:
            await holdfast.connect(engine + server.url("x"))
        assert time.monotonic() - started < AT_ONCE
        assert not isinstance(caught.value, Unavailable)


async def test_a_missing_bucket_says_what_to_do(caplog: pytest.LogCaptureFixture):
    with BucketServer() as server:
        error = await refusal(servers.url(server.endpoint, bucket="no-such-bucket", key=CANARY))
    assert "no such bucket" in str(error)
    assert_silent(error, caplog)


@pytest.mark.parametrize("lie", ["ignores If-Match", "ignores If-None-Match", "checks without atomicity"])
async def test_a_server_that_lies_is_refused(lie: str):
    with BucketServer(lie) as server:
        for _ in range(3):
            with pytest.raises(UnsafeStore):
                await holdfast.connect(server.url("x"))


async def test_an_honest_server_is_not_refused(s3: Place):
    for _ in range(3):
        async with holdfast.connect(s3.url):
            pass


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3:///prefix", "which bucket"),
        ("s3://AK:secret@bucket/x", "not before the bucket"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket/../b", "prefix"),
        ("s3://bucket/x?colour=red", "unknown key 'colour'"),
        ("s3://bucket/x?endpoint=http://127.0.0.1:1", "allow_http"),
        ("s3://bucket/x?endpoint=127.0.0.1:9000", "endpoint is a URL"),
        ("s3://bucket/x?endpoint=https://", "endpoint is a URL"),
        ("s3://bucket/x?endpoint=https://a b", "endpoint is a URL"),
        ("slatedb+s3://bucket/x?endpoint=localhost:9000", "endpoint is a URL"),
        ("s3://b/x", "at least 3 letters"),
    ],
)
async def test_bad_urls(url: str, says: str):
    with pytest.raises(ConfigError, match=says):
        await holdfast.connect(url, connect_timeout=2)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://bucket/x", "AWS_ACCESS_KEY_ID"),
        ("slatedb+s3://bucket/x", "AWS_SESSION_TOKEN"),
        ("az://bucket/x", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
async def test_a_key_that_ends_with_a_newline_is_refused_by_its_name(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
):
    """The driver ends in a panic, which is no exception that anybody handles."""
    monkeypatch.setenv(name, "canary\n")
    with pytest.raises(ConfigError, match=f"the variable {name} holds a newline") as caught:
        await holdfast.connect(url, connect_timeout=2)
    assert "canary" not in str(caught.value)
