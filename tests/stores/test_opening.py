"""URLs: what opens what, what is refused, and that nothing secret is shown."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.config import StoreOptions
from holdfast.errors import ConfigError, Unavailable
from holdfast.stores import opening
from holdfast.stores.log import slatedb
from holdfast.stores.opening import Location, locate, open_store, redact, store_options


@pytest.mark.parametrize(
    ("url", "scheme", "place", "options"),
    [
        ("memory://", "memory", "", {}),
        ("memory://jobs", "memory", "jobs", {}),
        ("MEMORY://jobs", "memory", "jobs", {}),
        ("file:///var/lib/jobs", "file", "/var/lib/jobs", {}),
        ("file://localhost/var/lib/jobs", "file", "/var/lib/jobs", {}),
        ("file:///a%20b", "file", "/a b", {}),
        ("file:///a?poll_interval=0.5", "file", "/a", {"poll_interval": 0.5}),
        ("/var/lib/jobs", "file", "/var/lib/jobs", {}),
        ("/My Data/ä?", "file", "/My Data/ä?", {}),
        ("./data", "file", "./data", {}),
        ("../data", "file", "../data", {}),
        ("holdfast-data", "file", "holdfast-data", {}),
        ("some/folder", "file", "some/folder", {}),
        (Path("a b"), "file", "a b", {}),
        ("slatedb+file:///var/lib/jobs", "slatedb+file", "/var/lib/jobs", {}),
        ("slatedb+file:///a?flush_interval=0.5", "slatedb+file", "/a", {"flush_interval": 0.5}),
    ],
)  # fmt: skip
def test_locate(url, scheme, place, options):
    assert locate(url) == Location(scheme, place, options)


def test_locate_slatedb_in_a_bucket():
    found = locate("slatedb+s3://jobs/a/b/?region=eu&secret_access_key=canary&flush_interval=0.1")
    assert found.options == {"region": "eu", "flush_interval": 0.1}
    place = slatedb.in_bucket(found.place, store_options({}, found.options, {}))
    assert (place.kind, place.root, place.path) == ("s3", "jobs", "a/b")
    assert dict(place.config) == {"aws_region": "eu", "aws_secret_access_key": "canary"}
    assert "canary" not in repr(found) + repr(place) + place.text
    assert slatedb.in_bucket(locate("slatedb+gs://jobs").place, StoreOptions()).path == "slatedb"


@pytest.mark.parametrize(
    ("url", "options", "sentence"),
    [
        ("slatedb+s3://bucket/x", {"endpoint": "http://127.0.0.1:1"}, "needs allow_http=true"),
        ("slatedb+gs://bucket/x", {"endpoint": "https://host"}, "endpoint cannot be used here"),
    ],
)
def test_slatedb_in_a_bucket_refused(url, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        slatedb.in_bucket(locate(url).place, StoreOptions(**options))


def test_home_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert locate("~/jobs").place == "/home/me/jobs"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "a store's URL is text"),
        ("   ", "a store's URL is text"),
        ("a\0b", "a store's URL is text"),
        (5, "a store's URL is text"),
        (b"memory://", "a store's URL is text"),
        ("not a url", "neither a URL nor a path"),
        ("postgresql:host", "neither a URL nor a path"),
        ("file:/var/lib", "neither a URL nor a path"),
        ("fil:///x", "did you mean 'file'"),
        ("postgre://x", "did you mean 'postgres"),
        ("memmory://", "did you mean 'memory'"),
        ("redis://x", "unknown scheme 'redis'"),
        ("file://", "which folder"),
        ("file:///", "which folder"),
        ("file:///a%00b", "which folder"),
        ("file://var/lib", "third slash"),
        ("file:///a#b", "%23"),
        ("file:///a?pol_interval=1", "did you mean 'poll_interval'"),
        ("file:///a?poll_interval=0", "above 0"),
        ("file:///a?poll_interval=1&lease=3", "unknown key 'lease'"),
        ("file:///a?poll_interval=soon", "poll_interval"),
        ("memory://a/b", "bad name of a memory store"),
        ("file://[x/y", "not a URL"),
        ("slatedb+file://", "which folder"),
        ("slatedb+file://var/lib", "third slash, as in slatedb"),
        ("slatedb+file:///a?flush_interval=-1", "flush_interval"),
        ("slatedb+file:///a?colour=red", "unknown key 'colour'"),
        ("slatedb+s3://", r"which bucket\? write slatedb\+s3://"),
        ("slatedb+s3:///prefix", "which bucket"),
        ("slatedb+s3://me:canary@bucket/x", "into the query or the environment"),
        ("slatedb+s3://bucket/a//b", "between single slashes"),
        ("slatedb+s3://bucket/x?regoin=eu", "unknown key 'regoin'"),
        ("slatedb+redis://x", "unknown scheme"),
        ("http://", "which host"),
        ("http://:canary@/x", "which host"),
        ("https://host:port/x", "which host"),
        ("http://host/x?colour=red", "unknown key 'colour'"),
    ],
)
def test_refused(url, sentence):
    with pytest.raises(ConfigError, match=sentence):
        locate(url)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:canary@host/db",
        "postgresql://canary@host/db",
        "postgresql://me:canary/with?odd#characters@host/db",
        "s3://bucket/p?access_key_id=canary&secret_access_key=canary&region=eu",
        "http://host?token=canary",
        "postgresql://host/db?user=me&password=canary&sslmode=require",
        "az://c/p?SAS=canary",
        "cannot open postgresql://me:canary@host/db: no route; tried nats://me:canary@other",
    ],
)
def test_redact(text):
    assert "canary" not in redact(text)


def test_redact_leaves_the_rest():
    assert (
        redact("s3://bucket/p?region=eu&endpoint=http://127.0.0.1:1")
        == "s3://bucket/p?region=eu&endpoint=http://127.0.0.1:1"
    )
    assert redact("postgresql://me:x@host/db?sslmode=require") == "postgresql://***@host/db?sslmode=require"


@pytest.mark.parametrize(
    "url", ["fil://me:canary@host/x", "file://me:canary@host/x", "file:///x?pasword=canary", "odd:me:canary@host"]
)
def test_errors_show_no_secrets(url):
    with pytest.raises(ConfigError) as caught:
        locate(url)
    assert "canary" not in str(caught.value)


def test_store_options_layers():
    made = store_options({"poll_interval": 1, "operation_timeout": 1}, {"operation_timeout": 2.0}, {})
    assert (made.poll_interval, made.operation_timeout) == (1, 2)
    with pytest.raises(ConfigError, match="connect: unknown key"):
        store_options({}, {}, {"leese": 1})


async def test_a_store_that_does_not_answer_is_unavailable(monkeypatch):
    async def never(location, options, pool):
        await asyncio.Event().wait()

    monkeypatch.setattr(opening, "_open", never)
    with pytest.raises(Unavailable, match=r"did not open within 0\.01 s"):
        await open_store(locate("memory://"), StoreOptions(connect_timeout=0.01))


async def test_loading_an_engine_is_not_the_stores_time(monkeypatch):
    """On a busy machine it takes seconds, and the cause that a store would tell was never heard."""

    async def opens(place, options):
        time.sleep(1.0)  # noqa: ASYNC251 - as an import does: nothing else happens meanwhile
        await asyncio.sleep(0.01)
        return "open"

    monkeypatch.setattr(opening, "_found", lambda name: opens)
    assert await open_store(locate("memory://"), StoreOptions(connect_timeout=0.1)) == "open"


_WITHOUT = """
import asyncio, sys
sys.modules[sys.argv[1]] = None
import holdfast

async def main():
    async with holdfast.connect(sys.argv[2], connect_timeout=20) as broker:
        await (await broker.queue("jobs")).enqueue(1)

asyncio.run(main())
"""


def without(module, url):
    """What a process says that lacks a package."""
    command = [sys.executable, "-c", _WITHOUT, module, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [
        ("obstore", "s3://bucket/x", "holdfast[s3]"),
        ("obstore", "slatedb+s3://bucket/x", "holdfast[slatedb]"),
        ("slatedb", "slatedb+file:///tmp/x", "holdfast[slatedb]"),
        ("asyncpg", "postgresql://host/x", "holdfast[postgres]"),
        ("nats", "nats://127.0.0.1", "holdfast[nats]"),
    ],
)
def test_a_missing_package_says_what_to_install(module, url, extra):
    told = without(module, url).splitlines()[-1]
    assert told.startswith("holdfast.errors.ConfigError: ")
    assert f"pip install '{extra}'" in told


@pytest.mark.parametrize("scheme", ["file", "slatedb+file"])
def test_a_folder_needs_no_package_for_buckets(scheme, tmp_path):
    assert without("obstore", f"{scheme}://{tmp_path}/data") == ""
