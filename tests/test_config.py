"""Settings: layers, limits, did-you-mean, the environment and holdfast.yaml."""

import logging
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import config
from holdfast.config import QueueOptions, Settings, StoreOptions, WorkerOptions
from holdfast.errors import ConfigError


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def write(folder, text):
    (folder / "holdfast.yaml").write_text(text)


def test_defaults():
    assert QueueOptions().lease == 30
    assert QueueOptions().max_attempts == 3
    assert QueueOptions().retry == holdfast.Exponential(base=1, factor=2, cap=300, jitter=True)
    assert WorkerOptions() == WorkerOptions(
        concurrency=10, prefetch=None, batch=None, batch_size=None, timeout=None, grace=30
    )
    assert (StoreOptions().poll_interval, StoreOptions().maintenance_interval) == (1, 30)
    assert StoreOptions().operation_timeout == 30


def test_later_layers_win():
    made = config.options(QueueOptions, {"lease": 1, "max_attempts": 5}, {"lease": 2})
    assert (made.lease, made.max_attempts) == (2.0, 5)


@pytest.mark.parametrize(
    ("kind", "key", "near"),
    [
        (QueueOptions, "leese", "lease"),
        (QueueOptions, "max_attempt", "max_attempts"),
        (StoreOptions, "pol_interval", "poll_interval"),
        (WorkerOptions, "concurency", "concurrency"),
    ],
)
def test_unknown_key_names_the_nearest(kind, key, near):
    with pytest.raises(ConfigError, match=f"unknown key '{key}'; did you mean '{near}'"):
        config.options(kind, {key: 1})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (QueueOptions, {"lease": 0}),
        (QueueOptions, {"lease": -1}),
        (QueueOptions, {"lease": True}),
        (QueueOptions, {"lease": "5"}),
        (QueueOptions, {"lease": float("nan")}),
        (QueueOptions, {"lease": float("inf")}),
        (QueueOptions, {"max_attempts": 0}),
        (QueueOptions, {"max_attempts": 1.5}),
        (QueueOptions, {"retry": {"policy": "never"}}),
        (QueueOptions, {"retry": {"policy": "fixed", "delay": -1}}),
        (QueueOptions, {"dead_letter": "a/b"}),
        (QueueOptions, {"archive_days": 0}),
        (QueueOptions, {"max_message_size": 0}),
        (QueueOptions, {"max_messages": 0}),
        (QueueOptions, {"dedup_window": -1}),
        (QueueOptions, {"shards": 0}),
        (StoreOptions, {"poll_interval": 0}),
        (StoreOptions, {"operation_timeout": None}),
        (WorkerOptions, {"concurrency": 0}),
        (WorkerOptions, {"prefetch": -1}),
        (WorkerOptions, {"batch": 0}),
        (WorkerOptions, {"batch_size": 0}),
        (WorkerOptions, {"timeout": 0}),
        (WorkerOptions, {"grace": -1}),
    ],
)
def test_bad_values_are_refused(kind, values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        config.options(kind, values)


def test_environment():
    env = {
        "HOLDFAST_URL": "memory://",
        "HOLDFAST_STORE_POLL_INTERVAL": "0.5",
        "HOLDFAST_QUEUE_LEASE": "60",
        "HOLDFAST_QUEUE_DEAD_LETTER": "false",
        "HOLDFAST_QUEUE_MAX_MESSAGES": "null",
        "HOLDFAST_QUEUE_RETRY": '{"policy": "fixed", "delay": 5}',
        "HOLDFAST_WORKER_CONCURRENCY": "3",
        "HOLDFAST_LOG_LEVEL": "DEBUG",
        "OTHER": "x",
    }
    assert config.load(env) == Settings(
        url="memory://",
        store={"poll_interval": 0.5},
        queue={"lease": 60.0, "dead_letter": False, "max_messages": None, "retry": holdfast.Fixed(5)},
        worker={"concurrency": 3},
        log_level="debug",
    )


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("HOLDFAST_QUEUE_LAESE", "1", "did you mean 'HOLDFAST_QUEUE_LEASE'"),
        ("HOLDFAST_STORE_POLL", "1", "HOLDFAST_STORE_POLL"),
        ("HOLDFAST_QUEUE_LEASE", "soon", "HOLDFAST_QUEUE_LEASE: lease: Expected `float`, got `str`$"),
        ("HOLDFAST_QUEUE_LEASE", "-1", "HOLDFAST_QUEUE_LEASE"),
        ("HOLDFAST_QUEUE_RETRY", "{", "HOLDFAST_QUEUE_RETRY"),
        ("HOLDFAST_LOG_LEVEL", "inf", "did you mean 'info'"),
        ("HOLDFAST_URI", "memory://", "did you mean 'HOLDFAST_URL'"),
        ("HOLDFAST_LOGLEVEL", "debug", "did you mean 'HOLDFAST_LOG_LEVEL'"),
        ("HOLDFAST_CONCURRENCY", "3", "did you mean 'HOLDFAST_WORKER_CONCURRENCY'"),
    ],
)
def test_bad_environment(variable, value, sentence):
    with pytest.raises(ConfigError, match=sentence):
        config.load({variable: value})


def test_variables_of_others_are_left_alone():
    others = {"HOLDFAST_IMAGE": "x", "HOLDFAST_VERSION": "3", "HOLDFAST_DATA": "/x", "HOLDFAST_EXAMPLES": "9"}
    assert config.load(others) == config.Settings()


def test_file(folder):
    write(
        folder,
        """
url: file:///var/lib/jobs
store: {poll_interval: 2}
worker: {concurrency: 4}
queues:
  emails: {lease: 60, retry: {policy: fixed, delay: 5}}
  plain:
log_level: warning
""",
    )
    found = config.load({}, folder)
    assert (found.url, found.store, found.worker) == ("file:///var/lib/jobs", {"poll_interval": 2}, {"concurrency": 4})
    assert found.for_queue("emails") == {"lease": 60, "retry": {"policy": "fixed", "delay": 5}}
    assert found.for_queue("plain") == found.for_queue("unknown") == {}
    assert found.log_level == "warning"


def test_environment_wins_over_file(folder):
    write(folder, "url: a\nstore: {poll_interval: 2, operation_timeout: 9}\nqueues: {q: {lease: 1, max_attempts: 9}}")
    found = config.load({"HOLDFAST_URL": "b", "HOLDFAST_STORE_POLL_INTERVAL": "3", "HOLDFAST_QUEUE_LEASE": "2"}, folder)
    assert found.url == "b"
    assert found.store == {"poll_interval": 3.0, "operation_timeout": 9}
    assert found.for_queue("q") == {"lease": 2.0, "max_attempts": 9}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("strore: {}", "did you mean 'store'"),
        ("store: {pol_interval: 1}", "did you mean 'poll_interval'"),
        ("worker: {concurrency: 0}", "concurrency"),
        ("queues: {emails: {leese: 1}}", "did you mean 'lease'"),
        ("queues: {'a/b': {}}", "bad queue name"),
        ("queues: {emails: {lease: soon}}", "queues: emails: lease: Expected `float`, got `str`$"),
        ("queues: {emails: {retry: {policy: fixd}}}", "queues: emails: retry: "),
        ("queues: [a]", "key: value"),
        ("- a", "key: value"),
        ("url: 5", "url must be text"),
        ("url: [", "not YAML"),
        ("log_level: loud", "unknown log level"),
    ],
)
def test_bad_file(folder, text, sentence):
    write(folder, text)
    with pytest.raises(ConfigError, match=sentence) as caught:
        config.load({}, folder)
    assert str(caught.value).startswith(str(folder / "holdfast.yaml"))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_an_error(folder):
    (folder / "holdfast.yaml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load({}, folder)


def test_no_file_is_fine(folder):
    assert config.load({}, folder) == Settings()


@pytest.mark.parametrize("name", ["a", "emails", "A.b_c-9", "0", "x" * 128])
def test_queue_names(name):
    assert config.queue_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "_a", "a/b", "../a", "a b", "a'b", 'a"b', "a\0", "a\n", "é", "🙂", "x" * 129, None, 5]
)
def test_bad_queue_names(name):
    with pytest.raises(ConfigError, match="bad queue name"):
        config.queue_name(name)


def test_log_level_is_set_only_when_asked():
    tree = logging.getLogger("holdfast")
    before = tree.level
    try:
        Settings().apply_log_level()
        assert tree.level == before
        Settings(log_level="error").apply_log_level()
        assert tree.level == logging.ERROR
    finally:
        tree.setLevel(before)


@pytest.mark.parametrize("value", [True, "1", None, -1, float("nan"), float("inf"), 1e12, datetime.now(UTC)])
def test_seconds_refuses(value):
    with pytest.raises(ConfigError, match="delay"):
        config.seconds("delay", value)
