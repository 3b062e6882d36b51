"""The broker: opening, queues and their options, closing, forks."""

import asyncio
import logging
import os

import pytest

import holdfast
from holdfast import Broker, ConfigError, Fixed, QueueExists, QueueNotEmpty, QueueNotFound
from holdfast.config import QueueOptions, Settings
from tests.toy_store import ToyStore


@pytest.fixture
def store():
    return ToyStore()


@pytest.fixture
def broker(store):
    return Broker(store)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch, tmp_path):
    """No variables and no holdfast.yaml of whoever runs this."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


async def test_connect_as_context_and_awaited():
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("q")
        await queue.enqueue(1)
        assert (await broker.stats())["q"].pending == 1
    for call in (queue.enqueue(1), queue.stats(), broker.queue("q"), broker.queues()):
        with pytest.raises(ConfigError, match="closed"):
            await call
    broker = await holdfast.connect("memory://")
    assert await broker.queues() == []
    await broker.close()
    await broker.close()


async def test_memory_is_private_unless_named():
    async with holdfast.connect("memory://") as a, holdfast.connect("memory://") as b:
        await a.queue("q")
        assert await b.queues() == []
    async with holdfast.connect("memory://jobs") as a, holdfast.connect("memory://jobs") as b:
        await (await a.queue("q")).enqueue(1)
        assert (await (await b.queue("q")).dequeue()).value == 1


async def test_a_folder_by_url_path_and_default(tmp_path, monkeypatch):
    async with holdfast.connect(f"file://{tmp_path}/a%20b") as broker:
        await (await broker.queue("q")).enqueue(1)
    assert (tmp_path / "a b").is_dir()
    async with holdfast.connect(tmp_path / "a b") as broker:
        assert (await (await broker.queue("q")).dequeue()).value == 1
    async with holdfast.connect():
        pass
    assert (tmp_path / "holdfast-data").is_dir()


async def test_where_the_url_comes_from(tmp_path, monkeypatch):
    (tmp_path / "holdfast.yaml").write_text("url: memory://from-file\n")
    async with holdfast.connect() as broker:
        assert broker.url == "memory://from-file"
    monkeypatch.setenv("HOLDFAST_URL", "memory://from-environment")
    async with holdfast.connect() as broker:
        assert broker.url == "memory://from-environment"
    async with holdfast.connect("memory://from-code") as broker:
        assert broker.url == "memory://from-code"


async def test_store_options_code_over_url_over_environment_over_file(tmp_path, monkeypatch):
    (tmp_path / "holdfast.yaml").write_text(
        "store: {poll_interval: 1, maintenance_interval: 1, operation_timeout: 1, connect_timeout: 1}"
    )
    monkeypatch.setenv("HOLDFAST_STORE_MAINTENANCE_INTERVAL", "2")
    monkeypatch.setenv("HOLDFAST_STORE_OPERATION_TIMEOUT", "2")
    monkeypatch.setenv("HOLDFAST_STORE_CONNECT_TIMEOUT", "2")
    async with holdfast.connect("memory://?operation_timeout=3&connect_timeout=3", connect_timeout=4) as broker:
        o = broker.options
        assert (o.poll_interval, o.maintenance_interval, o.operation_timeout, o.connect_timeout) == (1, 2, 3, 4)


async def test_unknown_options():
    with pytest.raises(ConfigError, match="did you mean 'poll_interval'"):
        await holdfast.connect("memory://", pol_interval=1)
    with pytest.raises(ConfigError, match="poll_interval"):
        await holdfast.connect("memory://", poll_interval=0)


def test_connect_itself_does_nothing(tmp_path):
    holdfast.connect(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


async def test_queue_is_created_once(broker):
    await broker.queue("q", lease=5)
    assert (await broker.queue("q")).options.lease == 5
    with pytest.raises(QueueNotFound, match="'absent'"):
        await broker.queue("absent", create=False)
    assert [info.name for info in await broker.queues()] == ["q"]


async def test_opening_a_queue_for_every_message_asks_the_store_once_a_second():
    class Counting(ToyStore):
        looks = 0

        async def queue(self, name):
            self.looks += 1
            return await super().queue(name)

    store = Counting()
    broker = Broker(store)
    for _ in range(100):
        await broker.queue("q", dict, lease=5)
    assert store.looks <= 3  # one, and others should this have been a long second
    await store.configure("q", QueueOptions(lease=6))
    await (await broker.queue("q", lease=5)).refresh()
    assert (await broker.queue("q", lease=5)).options.lease == 5
    assert (await store.queue("q")).options.lease == 5
    await store.delete_queue("q")
    with pytest.raises(QueueNotFound):
        await broker.queue("q", create=False)


async def test_create_queue(broker):
    queue = await broker.create_queue("q", lease=5)
    assert (queue.name, queue.options.lease) == ("q", 5)
    with pytest.raises(QueueExists):
        await broker.create_queue("q")


async def test_options_in_code_update_what_is_stored_and_are_logged_once(broker, store, caplog):
    caplog.set_level(logging.INFO, "holdfast")
    queue = await broker.queue("q")
    await broker.queue("q", lease=5, retry=Fixed(1))
    assert (await store.queue("q")).options.lease == 5
    assert queue.options.lease == 5
    lines = [record for record in caplog.records if "options changed" in record.getMessage()]
    assert len(lines) == 1
    await broker.queue("q", lease=5, retry=Fixed(1))
    await broker.queue("q")
    assert len([record for record in caplog.records if "options changed" in record.getMessage()]) == 1


async def test_environment_and_file_only_at_creation(store):
    settings = Settings(queue={"lease": 7.0}, queues={"q": {"lease": 6, "max_attempts": 9}})
    broker = Broker(store, settings=settings)
    options = (await broker.queue("q", max_attempts=4)).options
    assert (options.lease, options.max_attempts) == (7, 4)
    other = Broker(store, settings=Settings(queue={"lease": 8.0}))
    assert (await other.queue("q")).options.lease == 7


async def test_shards_are_fixed_at_creation(broker):
    await broker.queue("q", shards=2)
    assert (await broker.queue("q", shards=2)).options.shards == 2
    for change in (broker.queue("q", shards=3), broker.configure_queue("q", shards=3)):
        with pytest.raises(ConfigError, match="shards=2"):
            await change


async def test_configure_queue(broker):
    queue = await broker.queue("q")
    info = await broker.configure_queue("q", lease=9)
    assert info.options.lease == queue.options.lease == 9
    with pytest.raises(QueueNotFound):
        await broker.configure_queue("absent", lease=9)
    with pytest.raises(ConfigError, match="did you mean 'lease'"):
        await broker.configure_queue("q", leese=9)


@pytest.mark.parametrize(
    "bad",
    [{"leese": 1}, {"lease": 0}, {"codec": "pickle"}, {"retry": "often"}, {"dead_letter": "a/b"}],
    ids=str,
)
async def test_a_bad_option_creates_nothing(broker, bad):
    for call in (broker.queue("q", **bad), broker.create_queue("q", **bad)):
        with pytest.raises(ConfigError):
            await call
    assert await broker.queues() == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "q/dead", "x" * 200, "🙂", "a\0b"])
async def test_bad_names(broker, name):
    for call in (
        broker.queue(name),
        broker.create_queue(name),
        broker.configure_queue(name, lease=1),
        broker.delete_queue(name),
    ):
        with pytest.raises(ConfigError, match="bad queue name"):
            await call


async def test_somebody_else_creates_it_first(store):
    class Late(ToyStore):
        async def create_queue(self, name, options):
            await super().create_queue(name, options)
            return await super().create_queue(name, options)

    queue = await Broker(Late()).queue("q")
    assert queue.name == "q"


async def test_delete_queue(broker):
    queue = await broker.queue("q")
    await queue.enqueue(1)
    with pytest.raises(QueueNotEmpty):
        await broker.delete_queue("q")
    await broker.delete_queue("q", force=True)
    with pytest.raises(QueueNotFound):
        await queue.enqueue(1)
    with pytest.raises(QueueNotFound):
        await broker.delete_queue("q")


async def test_the_rest(broker):
    await broker.queue("q")
    assert await broker.install(dry_run=True) == []
    assert [check.state for check in await broker.check()] == ["ok"]
    assert set(await broker.maintain()) == {"q"}
    await broker.uninstall()
    assert await broker.queues() == []


async def test_on(broker):
    heard = []
    off = broker.on("message.enqueued", heard.append)
    queue = await broker.queue("q")
    id = await queue.enqueue(1)
    off()
    await queue.enqueue(1)
    assert heard == [{"queue": "q", "id": id}]


async def test_close_waits_for_callbacks(store):
    heard = []

    async def note(event):
        heard.append(await store.queue("q"))

    async with Broker(store) as broker:
        broker.on("message.enqueued", note)
        await (await broker.queue("q")).enqueue(1)
    assert len(heard) == 1


async def test_secrets_are_not_shown(store):
    broker = Broker(store, url="postgresql://me:canary@host/db?password=canary")
    assert "canary" not in repr(broker) + broker.url
    assert repr(Broker(store)) == "Broker(ToyStore)"


async def test_a_fork_takes_the_broker_away_from_the_child(broker):
    queue = await broker.queue("q")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            queue.store  # noqa: B018 - the store is there, but
            queue.stats().send(None)
        except ConfigError as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (await queue.stats()).total == 0


async def test_a_queue_is_not_its_own_dead_letter_queue(broker):
    for call in (broker.queue("jobs", dead_letter="jobs"), broker.create_queue("jobs", dead_letter="jobs")):
        with pytest.raises(ConfigError, match="names the queue itself"):
            await call
    assert await broker.queues() == []
    await broker.queue("jobs", dead_letter="graves")
    with pytest.raises(ConfigError, match="names the queue itself"):
        await broker.configure_queue("jobs", dead_letter="jobs")
    assert (await broker.queue("jobs")).options.dead_letter == "graves"


async def test_the_environment_names_one_dead_letter_queue_for_all_but_itself(monkeypatch):
    monkeypatch.setenv("HOLDFAST_QUEUE_DEAD_LETTER", "graves")
    async with holdfast.connect("memory://") as broker:
        assert (await broker.queue("jobs")).options.dead_letter == "graves"
        assert (await broker.queue("graves")).options.dead_letter is True
