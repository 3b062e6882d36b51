"""A store keeps one format: a newer version works with it as it is, until an operator raises it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

import holdfast
from holdfast import admin
from holdfast.errors import StoreError
from holdfast.stores import base, formats
from holdfast.stores.log.head import codec
from holdfast.stores.log.store import LogStore
from holdfast.stores.postgres import statements
from holdfast.stores.records import Settlement
from tests.cli_runner import Cli
from tests.servers.nats import Server
from tests.stores.postgres.fixtures import Database, install

STORES = ("file", "slatedb", "s3", "postgres", "nats")
Next = Callable[[], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "nats":
        return f"{request.getfixturevalue('nats_server').url}?prefix=t{os.urandom(6).hex()}"
    if request.param in ("postgres", "s3"):
        place: str = request.getfixturevalue(request.param).url
        return place
    return f"{'slatedb+' if request.param == 'slatedb' else ''}file://{tmp_path / 'store'}"


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Next:
    """While it lasts, this is the version that knows one format more."""

    @contextmanager
    def apply() -> Iterator[None]:
        migrations = statements.migrations()
        name, text = f"{len(migrations) + 1:03d}_next", statements.text
        with monkeypatch.context() as patch:
            patch.setattr(formats, "LOG", formats.LOG + 1)
            patch.setattr(formats, "NATS", formats.NATS + 1)
            patch.setattr(statements, "migrations", lambda: [*migrations, name])
            patch.setattr(statements, "text", lambda asked: "SELECT 1" if asked.endswith(name) else text(asked))
            yield

    return apply


async def number(url: str) -> formats.Format:
    async with holdfast.connect(url) as broker:
        assert broker.store.format is not None
        return broker.store.format


async def work(url: str) -> None:
    """What one process leaves the next one finds: a message that waits, one that is retried, one that is dead."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", max_attempts=2, retry=holdfast.Fixed(0))
        await queue.enqueue_many(range(4))
        done, failed, killed = await queue.dequeue_many(3)
        await done.complete("done")
        await failed.fail("once more")
        await killed.kill("enough")
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", lease=20.0)
        left = await queue.dequeue_many(10)
        assert [(each.value, each.attempt) for each in left] == [(1, 2), (3, 1)]
        assert await queue.complete_many(left) == [True, True]
        assert await queue.dead.purge() == 1


async def test_an_empty_store_starts_at_the_newest(url: str) -> None:
    await work(url)
    found = await number(url)
    assert found.number == found.newest
    assert [each for each in await admin.install(url) if "format" in each] == []
    [line] = [check for check in await admin.doctor(url) if check.name == "format"]
    assert (line.state, line.detail) == ("ok", f"{found.number}, the newest that this version knows")


async def test_a_store_of_the_format_before_is_used_as_it_is(url: str, next_version: Next) -> None:
    await work(url)
    before = (await number(url)).number
    with next_version():
        await work(url)
        assert await number(url) == formats.Format(before, before + 1)
        steps = await admin.install(url)
        assert f"left: raise the format from {before} to {before + 1}" in steps[-1]
        [line] = [check for check in await admin.doctor(url) if check.name == "format"]
        assert line.state == "warn"
        assert f"raise the format from {before} to {before + 1} with `holdfast install`" in line.detail
        await work(url)
    await work(url)  # a process of the version before that starts again


async def test_the_format_rises_when_the_operator_says_so(url: str, next_version: Next) -> None:
    await work(url)
    before = (await number(url)).number
    with next_version():
        async with holdfast.connect(url) as broker:
            assert await base.raise_format(broker.store, dry_run=True) == [
                f"raise the format from {before} to {before + 1}"
            ]
        assert await number(url) == formats.Format(before, before + 1)
        assert (await admin.install(url, agreed=lambda format: True))[
            -1
        ] == f"raise the format from {before} to {before + 1}"
        assert (await number(url)).number == before + 1
        async with holdfast.connect(url) as broker:
            assert [step for step in await broker.install(raise_format=True) if "format" in step] == []
        await work(url)
    with pytest.raises(StoreError, match="upgrade Holdfast"):
        await holdfast.connect(url)


async def test_a_folder_of_the_first_format_is_written_in_it(tmp_path: Path) -> None:
    """Until it is raised: a retry names its worker from the second on, which versions before cannot read."""
    url, held_back = f"file://{tmp_path}", []
    async with holdfast.connect(url) as broker:
        await broker.queue("jobs", retry=holdfast.Fixed(60))
    with closing(apsw.Connection(str(tmp_path / "holdfast.db"))) as database:
        database.execute("UPDATE meta SET value = 1 WHERE name = 'format'")
    for raises in (False, True):
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("jobs")
            await broker.install(raise_format=raises)
            id = await queue.enqueue(1)
            [held] = (await broker.store.claim("jobs", 1, 30.0, worker="h")).messages
            holder = await queue.get(id)
            assert holder is not None
            assert holder.worker == ("h" if raises else None)
            await broker.store.settle("jobs", [Settlement(id, held.token, "retry", delay=60.0, worker="w")])
            record = await queue.get(id)
            assert record is not None
            held_back.append((await number(url), record.worker, await head_number(broker)))
    assert held_back == [
        (formats.Format(1, formats.LOG), None, codec.PLAIN),
        (formats.Format(formats.LOG, formats.LOG), "w", codec.WORKERS),
    ]


async def head_number(broker: holdfast.Broker) -> int:
    assert isinstance(broker.store, LogStore)
    space = broker.store.space
    keys = await space.read(lambda view: view.list(""))
    [key] = [each for each in keys if each.endswith("/head") and not each.endswith("/dead/head")]
    found = await space.read(lambda view: view.get(key))
    assert found is not None
    number: int = msgspec.msgpack.decode(found.data)[0]
    return number


async def test_a_schema_without_the_last_migration_works_without_install(postgres: Database) -> None:
    postgres.rows("DROP SCHEMA holdfast CASCADE")
    *before, _ = statements.migrations()
    install(postgres.url, migrations=before)
    await work(postgres.url)
    async with holdfast.connect(postgres.url) as broker:
        assert await broker.install() == []
        assert await broker.install(raise_format=True) == [f"raise the format from {len(before)} to {len(before) + 1}"]
    await work(postgres.url)
    who = postgres.rows("SELECT applied_by IS NULL, applied_by = current_user FROM holdfast.migrations ORDER BY name")
    assert who == [(False, True)] * (len(before) + 1)


def test_the_command_asks_or_is_told(tmp_path: Path, next_version: Next, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = Cli(tmp_path / "store")
    cli("queue", "create", "q")
    with next_version():
        step = f"raise the format from {formats.LOG - 1} to {formats.LOG}"
        assert cli.out("install") == f"left: {step}, with --yes once every process is of this version"
        assert cli.out("install", "--dry-run", "--yes") == step
        with monkeypatch.context() as patch:
            patch.setattr("holdfast.cli.store.is_a_person", lambda: True)
            assert "left: " in cli.out("install", input="n\n")
            assert cli.out("install", input="y\n").endswith(step)
        assert cli.out("install", "--yes") == "nothing to do"


def test_more_than_one_format_apart_needs_the_versions_between() -> None:
    assert [formats.checked(number, 5, "here") for number in (4, 5)] == [4, 5]
    with pytest.raises(StoreError, match="here has format 3, this Holdfast knows 4 to 5: first run"):
        formats.checked(3, 5, "here")
