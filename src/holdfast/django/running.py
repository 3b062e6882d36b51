"""What a worker does with the message of a task."""

from __future__ import annotations

import traceback
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from ..outcome import Dead, Retry
from ..worker.context import Context
from . import api
from .backend import Call, HoldfastBackend, task_of

_TRACEBACK_CHARS = 6000  # the end of it, which tells most: a store keeps 8 KiB of an error


def run(call: Call, context: Context) -> Any:
    """Call the task. Its exception is final, as Django has it; `holdfast.Retry` runs it again later."""
    close_old_connections()
    backend: HoldfastBackend = api.task_backends[call.backend]
    try:
        return _called(backend, call, context)
    finally:
        close_old_connections()


def _called(backend: HoldfastBackend, call: Call, context: Context) -> Any:
    task = task_of(call)
    if call.id is not None:
        backend.keep_place(call.id, call.queue, context.message_id)
    result = backend._result(task, call, call.id or context.message_id)
    _set(result, status=api.TaskResultStatus.RUNNING, started_at=timezone.now(), last_attempted_at=timezone.now())
    result.worker_ids.extend([context.worker_id] * context.attempt)
    api.task_started.send(type(backend), task_result=result)
    args = [api.TaskContext(task_result=result), *call.args] if call.takes_context else call.args
    try:
        value = api.normalize_json(task.call(*args, **call.kwargs))
    except Retry:
        raise
    except (Exception, SystemExit) as error:  # `exit()` ends the task, as in Django's own backends, and not the worker
        text = _text(error)
        path, _, trace = text.partition("\n")
        result.errors.append(api.TaskError(exception_class_path=path, traceback=trace))
        _set(result, status=api.TaskResultStatus.FAILED, finished_at=timezone.now())
        api.task_finished.send(type(backend), task_result=result)
        raise Dead(text) from error
    _set(result, status=api.TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
    api.task_finished.send(type(backend), task_result=result)
    return value


def _set(result: Any, **changes: Any) -> None:
    for name, value in changes.items():
        object.__setattr__(result, name, value)


def _text(error: BaseException) -> str:
    kind = type(error)
    lines = "".join(traceback.format_exception(error))
    return f"{kind.__module__}.{kind.__qualname__}\n{lines[-_TRACEBACK_CHARS:]}"
