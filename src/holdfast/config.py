"""Every setting, with its default and unit, and where it comes from: code > environment > holdfast.yaml > defaults."""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .errors import ConfigError
from .first_look import known
from .retry import Exponential, RetryPolicy, policy_from
from .validate import positive as positive
from .validate import seconds as seconds
from .validate import whole as whole

MIB = 1 << 20  # bytes
FILE = "holdfast.yaml"
DEFAULT_URL = "./holdfast-data"
PREFIX = "HOLDFAST_"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

_AT_KEY = re.compile(r"(.*) - at `\$\.(.+)`")
_PREFIX_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")
MOST_ATTEMPTS = 2**31 - 1  # what every store can count to
_MOST_HANDLERS = 100_000  # each has its slot from the start
_SECTIONS = ("url", "store", "worker", "queues", "schedules", "log_level")

S = TypeVar("S", bound="_Options")


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that belong together; each knows its own limits."""

    def check(self) -> None:
        """Raises ConfigError for a value that cannot be meant."""


@known
class QueueOptions(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is stored with a queue. Seconds are floats, sizes bytes."""

    lease: float = 30.0  # seconds a delivery is invisible to others
    max_attempts: int = 3  # runs in all, then dead letter
    retry: RetryPolicy = Exponential()
    dead_letter: bool | str = True  # True: dead letters of the queue; a name: moved there; False: ends as failed
    archive: bool = True  # keep completed messages
    archive_days: float = 7.0  # days the archive is kept
    max_message_size: int = 64 * MIB  # bytes of the encoded payload
    max_messages: int | None = None  # QueueFull beyond it
    dedup_window: float = 300.0  # seconds a dedup key is remembered
    shards: int = 1  # log engine on cloud storage only; fixed at creation

    def check(self) -> None:
        positive("lease", self.lease)
        whole("max_attempts", self.max_attempts, most=MOST_ATTEMPTS)
        if isinstance(self.dead_letter, str):
            queue_name(self.dead_letter, what="dead_letter: bad queue name")
        positive("archive_days", self.archive_days)
        whole("max_message_size", self.max_message_size)
        if self.max_messages is not None:
            whole("max_messages", self.max_messages)
        seconds("dedup_window", self.dedup_window)
        whole("shards", self.shards, most=1024)


class StoreOptions(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a store is opened and kept. A store's own settings join these when the store arrives."""

    poll_interval: float = 1.0  # seconds between looks where nothing wakes us
    maintenance_interval: float = 30.0  # seconds between the rounds of `maintain`
    maintenance: bool = True  # a broker that only dequeues maintains too; False: workers and `holdfast maintain` alone
    connect_timeout: float = 30.0  # seconds to open the store
    operation_timeout: float = 30.0  # seconds one operation may take before it is Unavailable
    report_workers: bool | None = None  # a process with workers says so once a minute; None: where writes cost nothing

    # Buckets
    endpoint: str | None = None  # of a server that speaks the provider's protocol; None: the provider's own
    region: str | None = None  # None: as the provider's usual environment says
    allow_http: bool = False  # plain http, for servers on a trusted network

    # PostgreSQL
    schema: str = "holdfast"  # where our tables are
    max_connections: int = 10  # of one process, without the one that listens
    statement_timeout: float = 30.0  # seconds the server gives one statement
    notify: bool = True  # LISTEN/NOTIFY; False: new messages are found by polling only

    # NATS
    replicas: int = 1  # copies of every stream, on as many servers
    prefix: str = "holdfast"  # the first part of every subject and stream

    # SlateDB
    linger: float = 0.0  # seconds for which a single enqueue on a bucket waits for others to share its object
    flush_interval: float | None = None  # seconds between flushes at least; None: 0 on a disk, 0.05 on a bucket

    def check(self) -> None:
        for name in ("poll_interval", "maintenance_interval", "connect_timeout", "operation_timeout"):
            positive(name, getattr(self, name))
        if not _SCHEMA.fullmatch(self.schema):
            raise ConfigError(f"schema: 1 to 48 letters, digits and '_', beginning with a letter, not {self.schema!r}")
        whole("max_connections", self.max_connections)
        positive("statement_timeout", self.statement_timeout)
        whole("replicas", self.replicas, most=5)
        seconds("linger", self.linger)
        if self.flush_interval is not None:
            seconds("flush_interval", self.flush_interval)
        if not _PREFIX_TOKEN.fullmatch(self.prefix):
            raise ConfigError(f"prefix: 1 to 64 letters, digits, '_' and '-', not {self.prefix!r}")


class WorkerOptions(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a worker runs."""

    concurrency: int = 10  # handlers at once
    prefetch: int | None = None  # messages claimed beyond the running ones; None: as the store finds best
    batch: int | None = None  # hand the handler a list of up to so many values
    batch_size: int | None = None  # messages per call to the store; None: as the store finds best, mostly 100
    timeout: float | None = None  # seconds one attempt may take
    grace: float = 30.0  # seconds running handlers get to finish on stop

    def check(self) -> None:
        whole("concurrency", self.concurrency, most=_MOST_HANDLERS)
        if self.prefetch is not None:
            whole("prefetch", self.prefetch, least=0)
        if self.batch is not None:
            whole("batch", self.batch)
        if self.batch_size is not None:
            whole("batch_size", self.batch_size)
        if self.timeout is not None:
            positive("timeout", self.timeout)
        seconds("grace", self.grace)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What environment and holdfast.yaml say; checked, but not yet merged with what the code says."""

    url: str | None = None
    store: dict[str, Any] = {}
    worker: dict[str, Any] = {}
    queue: dict[str, Any] = {}  # the environment's, for every queue
    queues: dict[str, dict[str, Any]] = {}  # the file's, by name
    schedules: dict[str, dict[str, Any]] = {}  # the file's, by name; checked where they are applied
    log_level: str | None = None

    def __repr__(self) -> str:
        """Without the URL, which may have credentials in it."""
        url = None if self.url is None else "***"
        return f"Settings({url=}, store={self.store}, worker={self.worker}, queue={self.queue}, queues={self.queues})"

    def for_queue(self, name: str) -> dict[str, Any]:
        """What a queue of this name is created with, when the code does not say otherwise."""
        said = dict(self.queue)
        if said.get("dead_letter") == name:  # the environment speaks to all queues, and so to that of the dead as well
            del said["dead_letter"]
        return {**self.queues.get(name, {}), **said}

    def apply_log_level(self) -> None:
        """The level of the `holdfast` loggers, when one was asked for."""
        if self.log_level is not None:
            logging.getLogger("holdfast").setLevel(self.log_level.upper())


def load(env: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
    """Read the environment and `holdfast.yaml` of the working directory, now."""
    said = _from_environment(os.environ if env is None else env)
    written = _from_file((folder or Path()) / FILE)
    return Settings(
        url=said.url or written.url,
        store={**written.store, **said.store},
        worker={**written.worker, **said.worker},
        queue=said.queue,
        queues=written.queues,
        schedules=written.schedules,
        log_level=said.log_level or written.log_level,
    )


def options(kind: type[S], *layers: Mapping[str, Any], where: str = "options") -> S:
    """Settings from their defaults and these layers, the later ones winning; checked."""
    return changed(kind(), {key: value for layer in layers for key, value in layer.items()}, where=where)


def changed(base: S, changes: Mapping[str, Any], *, where: str = "options") -> S:
    """The same settings with some changed; ConfigError for an unknown key or a bad value."""
    values = {name: getattr(base, name) for name in base.__struct_fields__}
    for key, value in changes.items():
        if key not in values:
            raise ConfigError(unknown(f"{where}: unknown key", key, values))
        values[key] = value
    try:
        if "retry" in changes:
            values["retry"] = policy_from(changes["retry"])
        new = msgspec.convert(values, type(base))
        new.check()
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_worded(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return new


def _worded(error: msgspec.ValidationError) -> str:
    """What is wrong with a value, its key first."""
    found = _AT_KEY.fullmatch(str(error))
    return f"{found[2]}: {found[1]}" if found else str(error)


def unknown(sentence: str, given: object, known: Iterable[str]) -> str:
    """The sentence about something unknown, with the nearest known word."""
    near = difflib.get_close_matches(str(given), list(known), n=1)
    return f"{sentence} {given!r}; did you mean {near[0]!r}?" if near else f"{sentence} {given!r}"


def queue_name(name: object, *, what: str = "bad queue name") -> str:
    """The name, when it is one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name) if len(repr(name)) <= 200 else f"{repr(name)[:200]}…"
        raise ConfigError(f"{what} {shown}: 1 to 128 letters, digits, '_', '.', '-', beginning with a letter or digit")
    return name


def log_level(value: object, where: str) -> str:
    """The name of a level, in lower case."""
    level = str(value).lower()
    if level not in LOG_LEVELS:
        raise ConfigError(unknown(f"{where}: unknown log level", value, LOG_LEVELS))
    return level


_IN_ENVIRONMENT: dict[str, type[_Options]] = {"store": StoreOptions, "queue": QueueOptions, "worker": WorkerOptions}


def _from_environment(env: Mapping[str, str]) -> Settings:
    _refuse_near_misses(env)
    found: dict[str, Any] = {}
    for section, kind in _IN_ENVIRONMENT.items():
        prefix = f"{PREFIX}{section.upper()}_"
        said = {key: value for key, value in env.items() if key.startswith(prefix)}
        found[section] = _texts(kind, prefix, said)
    level = env.get(f"{PREFIX}LOG_LEVEL")
    return Settings(
        url=env.get(f"{PREFIX}URL") or None,
        log_level=log_level(level, f"{PREFIX}LOG_LEVEL") if level else None,
        **found,
    )


def _refuse_near_misses(env: Mapping[str, str]) -> None:
    """HOLDFAST_URI is a slip, and ignoring it would open another store; HOLDFAST_IMAGE is somebody else's variable."""
    fields = [f"{section}_{name}" for section, kind in _IN_ENVIRONMENT.items() for name in kind.__struct_fields__]
    known = [name.upper() for name in ("url", "log_level", *fields)]
    for variable in env:
        name = variable.removeprefix(PREFIX)
        if name != variable and name not in known and (near := difflib.get_close_matches(name, known, n=1)):
            raise ConfigError(f"environment: unknown variable {variable!r}; did you mean {PREFIX + near[0]!r}?")


def _texts(kind: type[_Options], prefix: str, said: Mapping[str, str]) -> dict[str, Any]:
    """Variables with this prefix as checked values of these settings."""
    values = {}
    for variable, text in said.items():
        key = variable.removeprefix(prefix).lower()
        if key not in kind.__struct_fields__:
            known = [f"{prefix}{name.upper()}" for name in kind.__struct_fields__]
            raise ConfigError(unknown("environment: unknown variable", variable, known))
        values[key] = from_text(kind, key, text, where=variable)
    return values


def from_text(kind: type[_Options], key: str, text: str, *, where: str) -> Any:
    """One value of these settings from text, as environment and URL queries give it."""
    plain: Any = {"true": True, "false": False}.get(text.lower(), text)
    if text.startswith("{"):
        try:
            plain = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{where}: {error}") from error
    try:
        value = msgspec.convert({key: plain}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_worded(error)}") from error
    return getattr(changed(kind(), {key: getattr(value, key)}, where=where), key)


def _from_file(path: Path) -> Settings:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    import yaml  # only when there is a file: it is slow to load

    try:
        content = yaml.safe_load(text)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # the last two: dates and numbers that are none, depth
        # Without the line, which PyYAML would show: a password may stand there.
        raise ConfigError(f"{path} is not YAML: {_complaint(error)}") from None
    return _settings(_mapping(content, str(path)), str(path))


def _complaint(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(getattr(error, "problem", None) or type(error).__name__).split()) + where


def _settings(content: Mapping[str, Any], where: str) -> Settings:
    for key in content:
        if key not in _SECTIONS:
            raise ConfigError(unknown(f"{where}: unknown key", key, _SECTIONS))
    store, worker, queues = (_mapping(content.get(key), f"{where}: {key}") for key in ("store", "worker", "queues"))
    options(StoreOptions, store, where=f"{where}: store")
    options(WorkerOptions, worker, where=f"{where}: worker")
    for name, values in queues.items():
        queue_name(name, what=f"{where}: queues: bad queue name")
        options(QueueOptions, _mapping(values, f"{where}: queues: {name}"), where=f"{where}: queues: {name}")
    schedules = _mapping(content.get("schedules"), f"{where}: schedules")
    for name, values in schedules.items():
        queue_name(name, what=f"{where}: schedules: bad name")
        _mapping(values, f"{where}: schedules: {name}")
    url, level = content.get("url"), content.get("log_level")
    if url is not None and not isinstance(url, str):
        raise ConfigError(f"{where}: url must be text")
    return Settings(
        url=url,
        store=dict(store),
        worker=dict(worker),
        queues={name: dict(values or {}) for name, values in queues.items()},
        schedules={name: dict(values or {}) for name, values in schedules.items()},
        log_level=None if level is None else log_level(level, where),
    )


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    """What YAML calls a mapping; nothing at all is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{where}: expected `key: value` lines")
    return value
