"""What is known about the type of a queue: is a value one of it, and does pydantic have to read it?"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from ..errors import CodecError

Checker: TypeAlias = Callable[[Any], object]


def name_of(type: Any) -> str:
    """A type as people write it."""
    return "any value" if type is None else getattr(type, "__name__", None) or str(type)


def members(type: Any) -> tuple[Any, ...]:
    """The members of a union; of anything else, itself."""
    if isinstance(type, types.UnionType) or typing.get_origin(type) is typing.Union:
        return typing.get_args(type)
    return (type,)


def uses_pydantic(type: Any) -> bool:
    """Whether a pydantic model is somewhere in the type. Nobody who has one has not imported pydantic."""
    if "pydantic" not in sys.modules:
        return False
    if hasattr(type, "__pydantic_core_schema__"):
        return True
    return any(uses_pydantic(part) for part in typing.get_args(type))


def adapter(type: Any) -> Any:
    """Pydantic's reader and writer of a type."""
    import pydantic  # the type says that it is there

    return pydantic.TypeAdapter(type)


def checker(type: Any) -> Checker:
    """A function that refuses what is not of this type, so that no consumer ever meets it."""
    kinds = members(type)
    if all(_is_record(kind) for kind in kinds):
        return _instance_of(type, kinds)
    if uses_pydantic(type):
        validate: Checker = adapter(type).validate_python
        return validate
    return lambda value: msgspec.convert(value, type)


def plain(value: Any) -> Any:
    """What an encoder does with an object it does not know: pydantic models, wherever they are in a value."""
    if (dump := getattr(value, "model_dump", None)) is not None:
        return dump(mode="json")
    raise TypeError(f"values of type {type(value).__qualname__} have no JSON form")


def read(kind: type, value: Any) -> Any:
    """What a decoder does with a class it does not know: pydantic models, wherever they are in a type."""
    if isinstance(value, kind):
        return value
    if (validate := getattr(kind, "model_validate_json", None)) is not None:
        # Strict models read instants and the like from JSON only, so that is what they are given.
        return validate(msgspec.json.encode(value))
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def _is_record(kind: Any) -> bool:
    """A class whose instances are known by their class alone."""
    if not isinstance(kind, type):
        return False
    return issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate_json")


def _instance_of(type: Any, kinds: tuple[Any, ...]) -> Checker:
    def check(value: Any) -> None:
        if not isinstance(value, kinds):
            raise CodecError(f"expected {name_of(type)}, got {value.__class__.__name__}")

    return check
