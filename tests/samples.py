"""One type of each kind that the codec knows, for the tests of what becomes of their values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from typing import Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 7, 1, 12, 0, 0, 123456, UTC)
ID = UUID("12345678-1234-5678-1234-567812345678")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    HUGE = 2


class Word(StrEnum):
    YES = "yes"


class Mixed(Enum):
    NUMBER = 1
    TEXT = "1"
    RATIO = 1.5
    PAIR = (1, "a")
    NOTHING = None
    DAY = date(2026, 1, 1)


class Rights(Flag):
    READ = 1
    WRITE = 2


class Bits(IntFlag):
    A = 1
    B = 2


@dataclass
class Line:
    price: float
    count: int = 1


@dataclass
class Order:
    lines: list[Line]
    tags: dict[str, Any] = field(default_factory=dict)
    parent: Order | None = None


@dataclass
class Cat:
    kind: Literal["cat"]
    name: str
    when: date | datetime | None = None
    kittens: list[Cat | Dog] = field(default_factory=list)


@dataclass
class Dog:
    kind: Literal["dog"]
    name: str


@dataclass
class Box:
    width: int


@dataclass
class Crate:
    width: int
    depth: int = 0


class Point(NamedTuple):
    x: int
    y: int = 0


class Place(NamedTuple):
    when: date | datetime
    where: UUID | str = "here"


class Row(TypedDict):
    a: int
    b: NotRequired[UUID | str]


class Struct(msgspec.Struct):
    price: float
    when: datetime | None = None
    left_out: int | msgspec.UnsetType = msgspec.UNSET


class Tagged(msgspec.Struct, tag="tagged", rename="camel"):
    unit_price: float


class Listed(msgspec.Struct, array_like=True, tag=True):
    a: int
    b: float


class Model(pydantic.BaseModel):
    price: float
    when: datetime | None = None
    lines: list[Model] = []
    amount: Decimal = Decimal("1.50")
    anything: Any = None
    url: pydantic.AnyUrl | None = None
    named: str = pydantic.Field(default="x", alias="calledThis")


class Strict(pydantic.BaseModel, strict=True):
    when: datetime
    some: set[int] = set()


class Numbers(pydantic.RootModel[list[float]]):
    pass


class Secretive(pydantic.BaseModel):
    password: pydantic.SecretStr


Price = NewType("Price", Decimal)
