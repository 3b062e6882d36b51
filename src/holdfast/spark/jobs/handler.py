"""What `process` runs: a handler named MODULE:HANDLER, or given as a function, with what its worker must know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ...app import App, AppHandler
from ...errors import ConfigError
from ...worker import naming


class Work(msgspec.Struct, frozen=True):
    """A function, how its messages are read, and the options of its worker."""

    function: Callable[..., Any]
    type: Any = None
    codec: Any = None
    queue_options: Mapping[str, Any] = {}
    worker_options: Mapping[str, Any] = {}


def work_of(target: Any, queue: str, *, type: Any = None) -> Work:
    """The work that a name, a handler of an app, an app or a plain function stands for; ConfigError."""
    found = named(target) if isinstance(target, str) else target
    found = getattr(found, "core", found)  # a sync.App is a face of one
    if isinstance(found, App):
        found = found.choose([queue])[0]
    if isinstance(found, AppHandler):
        own = found.queue_options if found.queue_name == queue else {}
        return Work(found.function, type or found._type, found._codec, own, found.worker_options)
    if not callable(found):
        raise ConfigError(f"{target}: a handler is a function, a handler of an app or an app, not {found!r}")
    return Work(found, named(type) if isinstance(type, str) else type)


def named(spec: str) -> Any:
    """What `MODULE:NAME` names, for the driver; ConfigError."""
    return naming.named(
        spec,
        shape="MODULE:HANDLER, such as tasks:send",
        absent="; on a cluster ship it with --conf spark.submit.pyFiles=…",
    )
