"""The backend: enqueueing, and results."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from .. import sync
from ..config import queue_name
from ..errors import ConfigError, HoldfastError, QueueNotFound
from ..escaping import logger_named
from ..ids import born_at, is_id, number
from ..loop_thread import portal
from ..stores.values import Values
from . import api
from .stores import store_of

_LOG = logger_named("holdfast.django")
_MODES = ("immediate", "on_commit", "transaction")
_OPTIONS = {"URL", "ENQUEUE", "DATABASE", "MAX_ATTEMPTS", "LEASE", "RESULT_DAYS"}
_LEAST_PRIORITY = 100  # Django's go from -100 to 100, ours from 0 up
_DAY_S = 86400  # in which `archive_days` are counted
_MADE_FIRST = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # an id of ours that no store has made
_PATH = re.compile(r"[A-Za-z_][\w.]*")


class Call(msgspec.Struct):
    """What a message says: a task, and what it is called with."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    priority: int = 0
    queue: str = "default"
    takes_context: bool = False
    id: str | None = None  # that the caller has, where it was made before the message; None: the message's


class _Place(msgspec.Struct, array_like=True):
    """Where the task of a result is, when its id was made before it."""

    queue: str
    id: str


_read_place = msgspec.json.Decoder(_Place).decode


class HoldfastBackend(api.BaseTaskBackend):
    """OPTIONS: URL of the store, ENQUEUE, DATABASE, MAX_ATTEMPTS, LEASE (seconds), RESULT_DAYS."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    # By id what could not be enqueued after its commit. Each thread has a backend of its own.
    _failed: ClassVar[dict[str, HoldfastError]] = {}

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = self.options
        if unknown := sorted(set(options) - _OPTIONS):
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: unknown OPTIONS {', '.join(unknown)}")
        self.url: str | None = options.get("URL")
        self.mode = str(options.get("ENQUEUE", "immediate"))
        if self.mode not in _MODES:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: ENQUEUE is one of {', '.join(_MODES)}, not {self.mode!r}")
        self.database = str(options.get("DATABASE", DEFAULT_DB_ALIAS))
        self._queue_options = {
            "max_attempts": options.get("MAX_ATTEMPTS", 3),
            "lease": options.get("LEASE", 30.0),
            "archive_days": options.get("RESULT_DAYS", 7.0),
        }
        for name in self.queues:
            queue_name(name)

    @property
    def broker(self) -> sync.Broker:
        """The open store of this process."""
        return store_of(self.url)

    def queue(self, name: str) -> sync.Queue[Call]:
        found: sync.Queue[Call] = self.broker.queue(queue_name(name), Call, **self._queue_options)
        return found

    # Enqueueing.

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        call = Call(
            task.module_path, api.normalize_json(list(args)), api.normalize_json(dict(kwargs)), self.alias,
            task.priority, task.queue_name, task.takes_context,
        )  # fmt: skip
        if self.mode == "on_commit" and transaction.get_connection(self.database).in_atomic_block:
            self._values  # noqa: B018 - while the caller can still be told that there are none
            call.id = f"{uuid4()}"
            result = self._result(task, call, call.id)
            transaction.on_commit(partial(self._after_commit, task, call, call.id), using=self.database)
        else:
            id = self._send(task, call)
            result = self._result(task, call, id)
            object.__setattr__(result, "enqueued_at", _enqueued_at(id))
        api.task_enqueued.send(type(self), task_result=result)
        return result

    def _send(self, task: Any, call: Call) -> str:
        terms: dict[str, Any] = {"priority": task.priority + _LEAST_PRIORITY}
        if task.run_after is not None:
            terms["at"] = task.run_after.astimezone()
        if self.mode == "transaction":
            terms |= self._joined()
        return self.queue(task.queue_name).enqueue(call, **terms)

    def _joined(self) -> dict[str, Any]:
        """With what Django's own transaction commits, on the store's PostgreSQL."""
        connection = connections[self.database]
        if not connection.in_atomic_block:
            return {}
        if connection.vendor != "postgresql":
            raise ConfigError(f'ENQUEUE "transaction" needs the store\'s PostgreSQL, not {connection.vendor}')
        connection.ensure_connection()
        return {"connection": connection.connection, "notify": True}

    def _after_commit(self, task: Any, call: Call, id: str) -> None:
        """The caller has its id: what goes wrong is logged, and raised by `get_result`."""
        try:
            message_id = self._send(task, call)
            waits_s = 0.0 if task.run_after is None else (task.run_after - timezone.now()).total_seconds()
            self.keep_place(id, task.queue_name, message_id, waits_s=max(waits_s, 0.0))
        except HoldfastError as error:
            self._failed[id] = error
            _LOG.exception("the task %s of %s could not be enqueued after the commit", id, call.task)

    def keep_place(self, id: str, queue: str, message_id: str, *, waits_s: float = 0.0) -> None:
        """Where the message of an id is that was made before it, as long as its result is kept.

        A worker says it again when the task begins: the process that enqueued it may have died in between.
        """
        lives_s = waits_s + float(self._queue_options["archive_days"]) * _DAY_S
        place = msgspec.json.encode(_Place(queue, message_id))
        portal().run(self._values.put(_key(id), place, expires_in=lives_s))

    @property
    def _values(self) -> Values:
        values = self.broker.core.store.values
        if values is None:
            raise ConfigError('this store keeps no values, which ENQUEUE "on_commit" needs')
        return values

    # Results.

    def get_result(self, result_id: str) -> Any:
        if (error := self._failed.get(result_id)) is not None:
            raise error
        for name, id in self._places(str(result_id)):
            try:
                record = self.broker.queue(name, Call, create=False).get(id)
            except QueueNotFound:
                continue
            if record is not None:
                return self._found(record, str(result_id))
        raise api.TaskResultDoesNotExist(result_id)

    def _places(self, result_id: str) -> list[tuple[str, str]]:
        if not is_id(result_id) and (place := self._kept(result_id)) is not None:
            return [(place.queue, place.id)]
        queues = self.queues or {info.name for info in self.broker.queues()}
        return [(name, result_id) for name in sorted(queues)] if is_id(result_id) else []

    def _kept(self, id: str) -> _Place | None:
        if not _MADE_FIRST.fullmatch(id) or (values := self.broker.core.store.values) is None:
            return None
        [found] = portal().run(values.get([_key(id)]))
        return None if found is None else _read_place(found.data)

    def _result(self, task: Any, call: Call, id: str) -> Any:
        return api.TaskResult(
            task=task, id=id, status=api.TaskResultStatus.READY, enqueued_at=None, started_at=None,
            finished_at=None, last_attempted_at=None, args=call.args, kwargs=call.kwargs, backend=self.alias,
            errors=[], worker_ids=[],
        )  # fmt: skip

    def _found(self, record: Any, id: str) -> Any:
        call: Call = record.value
        status = _STATUS.get(record.status, api.TaskResultStatus.FAILED)
        result = self._result(task_of(call), call, id)
        changes = {
            "status": status,
            "enqueued_at": _enqueued_at(record.id),
            "started_at": record.claimed_at,
            "last_attempted_at": record.claimed_at,
            "finished_at": record.finished_at,
            "errors": _errors(record.error) if status == api.TaskResultStatus.FAILED else [],
            "worker_ids": [str(record.worker or "")] * record.attempts,
        }
        if status == api.TaskResultStatus.SUCCESSFUL:
            changes["_return_value"] = record.result
        for name, value in changes.items():
            object.__setattr__(result, name, value)
        return result


_STATUS = {
    "pending": api.TaskResultStatus.READY,
    "delayed": api.TaskResultStatus.READY,
    "retry": api.TaskResultStatus.READY,
    "processing": api.TaskResultStatus.RUNNING,
    "completed": api.TaskResultStatus.SUCCESSFUL,
}


def task_of(call: Call) -> Any:
    """The task as it was enqueued."""
    return import_string(call.task).using(priority=call.priority, queue_name=call.queue, backend=call.backend)


def _errors(text: str | None) -> list[Any]:
    """As the worker wrote them: the path of the class, then the traceback; or a word of the store's own."""
    path, _, rest = (text or "").partition("\n")
    if not rest or not _PATH.fullmatch(path):
        path, rest = "holdfast.errors.LeaseLost", text or ""
    return [api.TaskError(exception_class_path=path, traceback=rest)]


def _enqueued_at(id: str) -> datetime:
    """As the store made the id, so that the caller knows it without asking."""
    return datetime.fromtimestamp(born_at(number(id) or 0), UTC)


def _key(id: str) -> str:
    return f"django/{id}"
