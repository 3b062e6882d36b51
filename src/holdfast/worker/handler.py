"""A user's function, looked at once: sync or async, with or without context."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Handler:
    """How to call it."""

    __slots__ = ("function", "is_async", "name", "takes_context")

    def __init__(self, function: Callable[..., Any], *, batch: bool = False) -> None:
        if not callable(function):
            raise ConfigError(f"a handler is a function, not {function!r}")
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self.is_async = is_async(function)
        self.takes_context = _takes_context(function, self.name)
        if batch and self.takes_context:
            raise ConfigError(f"{self.name}: a batch handler takes the list of values and nothing else")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine; objects with an async `__call__` included."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - what it is, not whether


def _takes_context(function: Callable[..., Any], name: str) -> bool:
    """(value) or (value, context): a second parameter counts when it is required or called `context`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    required = [p for p in positional if p.default is p.empty]
    stray = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if len(required) > 2 or stray:
        raise ConfigError(f"{name}: a handler takes (value) or (value, context), not {inspect.signature(function)}")
    if not positional and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ConfigError(f"{name}: a handler takes (value) or (value, context), not no arguments")
    return len(required) == 2 or (len(positional) >= 2 and positional[1].name == "context")
