"""What `process` runs: a handler named MODULE:HANDLER, or given as a function, with what its worker must know."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ... import config
from ...app import App, AppHandler
from ...errors import ConfigError


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
    """What `MODULE:NAME` names, seen from the working directory; ConfigError."""
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"{spec!r}: write MODULE:HANDLER, such as tasks:send")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise ConfigError(
                f"there is no module {module_name!r} here; on a cluster ship it with --conf spark.submit.pyFiles=…"
            ) from error
        raise ConfigError(f"module {module_name!r} needs {error.name!r}, which is not installed") from error
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(config.unknown(f"{spec}: the module has no", part, vars(module)))
        found = getattr(found, part)
    return found
