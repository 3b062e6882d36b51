"""Records of all kinds, for tables of their fields; executors import them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic


class Order(msgspec.Struct):
    n: int
    to: str = "nobody"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(msgspec.Struct):
    city: str
    zip: int | None = None


class Everything(msgspec.Struct):
    whole: int
    real: float
    text: str
    flag: bool
    raw: bytes
    at: datetime.datetime
    day: datetime.date
    price: decimal.Decimal
    key: uuid.UUID
    colour: Colour
    place: Place
    tags: list[str]
    places: list[Place]
    counts: dict[str, int]
    maybe: str | None = None
    anything: Any = None


class Wire(msgspec.Struct, rename="camel", tag="wire"):
    first_name: str


class Row(msgspec.Struct, array_like=True, tag="row"):
    a: int
    b: str
    inner: Place


@dataclasses.dataclass
class Parcel:
    weight: float
    stops: list[Place]


class Reading(TypedDict):
    value: float
    unit: NotRequired[str]


class Address(pydantic.BaseModel):
    city: str


class Customer(pydantic.BaseModel):
    id: int
    name: str = pydantic.Field(serialization_alias="fullName")
    since: datetime.datetime = pydantic.Field(alias="memberSince")
    address: Address | None = None


class Empty(msgspec.Struct):
    pass


class Holder(msgspec.Struct):
    empty: Empty


class Spaced(msgspec.Struct):
    a: int = msgspec.field(name="total amount")


class Twice(msgspec.Struct):
    a: int
    b: int = msgspec.field(name="A")


class Taken(msgspec.Struct):
    message_id: str


class Node(msgspec.Struct):
    next: Node | None = None


class Later(msgspec.Struct):
    """An order of a later version."""

    n: str
    to: str
    more: int = 0


class Roots(pydantic.RootModel[list[int]]):
    pass
