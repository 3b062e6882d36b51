"""`MODULE:NAME`, as people write it on a command line, and what it names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from .. import config
from ..errors import ConfigError


def named(spec: str, *, shape: str = "MODULE:NAME, such as tasks:app", absent: str = "") -> Any:
    """What it names, seen from the working directory; ConfigError. `absent`: what else to say of a missing module."""
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"{spec!r}: write {shape}")
    found = _module(module_name, absent)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(config.unknown(f"{spec}: the module has no", part, dir(found)))
        found = getattr(found, part)
    return found


def _module(name: str, absent: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):  # itself, or a package around it
            raise ConfigError(f"there is no module {name!r} here{absent}") from error
        raise ConfigError(f"module {name!r} needs {error.name!r}, which is not installed") from error
