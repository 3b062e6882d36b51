"""Types on their way to executors. A Struct made in a notebook or in `__main__` travels as a recipe: pickled as it is
it would arrive without its fields."""

from __future__ import annotations

import functools
import operator
import sys
import types
import typing
from typing import Any, NamedTuple

import msgspec

_SETTINGS = ("frozen", "array_like", "omit_defaults", "forbid_unknown_fields", "tag", "tag_field")


class _Recipe(NamedTuple):
    """How to make a Struct again."""

    name: str
    module: str
    fields: list[tuple[str, Any, Any, str]]  # name, type, default, name on the wire
    settings: dict[str, Any]


class _Generic(NamedTuple):
    """`list[…]`, `dict[…]` or a union with such a Struct inside."""

    origin: Any  # None: a union
    arguments: tuple[Any, ...]


class Portable:
    """Pickle this instead of the type; `type` is the type again."""

    def __init__(self, type: Any) -> None:
        self.type = type

    def __getstate__(self) -> Any:
        return (_packed(self.type),)  # a state of None would not be set at all

    def __setstate__(self, state: Any) -> None:
        self.type = _unpacked(state[0])


def _packed(type_: Any) -> Any:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct) and not _can_be_imported(type_):
        fields = [
            (one.name, _packed(one.type), _default(one), one.encode_name) for one in msgspec.structs.fields(type_)
        ]
        config = type_.__struct_config__
        return _Recipe(
            type_.__qualname__, type_.__module__, fields, {name: getattr(config, name) for name in _SETTINGS}
        )
    arguments = tuple(_packed(each) for each in typing.get_args(type_))
    if not any(isinstance(each, _Recipe | _Generic) for each in arguments):
        return type_
    origin = typing.get_origin(type_)
    return _Generic(None if origin in (types.UnionType, typing.Union) else origin, arguments)


def _unpacked(state: Any) -> Any:
    if isinstance(state, _Recipe):
        fields = [(name, _unpacked(kind), _field(default, wire)) for name, kind, default, wire in state.fields]
        return msgspec.defstruct(state.name, fields, module=state.module, kw_only=True, **state.settings)
    if isinstance(state, _Generic):
        arguments = tuple(_unpacked(each) for each in state.arguments)
        return functools.reduce(operator.or_, arguments) if state.origin is None else state.origin[arguments]
    return state


def _can_be_imported(type_: type) -> bool:
    if type_.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(type_.__module__)
    for name in type_.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is type_


def _default(field: Any) -> Any:
    """A value, a function in a list of its own, or nothing at all."""
    if field.default_factory is not msgspec.NODEFAULT:
        return [field.default_factory]
    return () if field.default is msgspec.NODEFAULT else (field.default,)


def _field(default: Any, wire: str) -> Any:
    if isinstance(default, list):
        return msgspec.field(default_factory=default[0], name=wire)
    return msgspec.field(default=default[0], name=wire) if default else msgspec.field(name=wire)
