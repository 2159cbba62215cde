"""What the codec writes, what comes back, and what it refuses with the path to it."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal
from unittest.mock import MagicMock
from uuid import UUID

import msgspec
import pydantic
import pytest

from dibs.codec import JsonCodec
from dibs.errors import InvalidArgument
from samples import (
    BERLIN,
    ID,
    NOON,
    Bits,
    Cat,
    Color,
    Crate,
    Dog,
    Line,
    Listed,
    Mixed,
    Model,
    Numbers,
    Order,
    Place,
    Point,
    Price,
    Rights,
    Row,
    Secretive,
    Size,
    Strict,
    Struct,
    Tagged,
    Word,
)

codec = JsonCodec()


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (None, None),
        (True, bool),
        (2**63, int),
        (-(2**200), int),
        (10**4299, int),
        (1e16, float),
        (5e-324, float),
        (1, float),
        ("Zoë \\u0000 null \u2028 \U0001f600", str),
        (NOON, datetime),
        (datetime(2026, 7, 1, tzinfo=BERLIN), datetime),
        (datetime(1850, 1, 1, tzinfo=BERLIN), datetime),  # an offset of 53 minutes and 28 seconds
        (datetime(2026, 7, 1, tzinfo=timezone(timedelta(microseconds=1))), datetime),
        (datetime.max.replace(tzinfo=UTC), datetime),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), datetime),
        (date(1, 1, 1), date),
        (time(1, 2, 3, 4), time),
        (time(1, 2, tzinfo=timezone(timedelta(hours=-3, minutes=-30))), time),
        (timedelta.max, timedelta),
        (timedelta.min, timedelta),
        (timedelta(microseconds=-1), timedelta),
        (ID, UUID),
        (Decimal("1.50"), Decimal),
        (Decimal("-0E+5000"), Decimal),
        (Decimal("1.50"), Price),
        (b"\x00\xff", bytes),
        (bytearray(b"a"), bytearray),
        (Color.RED, Color),
        (Size.HUGE, Size),
        (Word.YES, Word),
        (Rights.READ | Rights.WRITE, Rights),
        (Bits.A | Bits.B, Bits),
        *((member, Mixed) for member in Mixed),
        ({1, 2}, set[int]),
        (frozenset({(1, "a")}), frozenset[tuple[int, str]]),
        ((1, NOON), tuple[int, datetime]),
        ((ID, ID), tuple[UUID, ...]),
        ((), tuple[()]),
        ({"a": [NOON]}, dict[str, list[datetime]]),
        ({1: "a", 2**70: "b"}, dict[int, str]),
        ({1.5: "a"}, dict[float, str]),
        ({ID: 1}, dict[UUID, int]),
        ({date(2026, 1, 1): 1}, dict[date, int]),
        ({NOON: 1}, dict[datetime, int]),
        ({Size.HUGE: 1}, dict[Size, int]),
        ({Color.RED: 1}, dict[Color, int]),
        ({Decimal("1.5"): 1}, dict[Decimal, int]),
        ({b"a": 1}, dict[bytes, int]),
        ([1], Sequence[int]),
        ([NOON], Iterable[datetime]),
        ({"a": 1}, Mapping[str, int]),
        ({"a": [None, {"b": 1.5}]}, object),
        (Order([Line(1.5), Line(2.0, 3)], {"a": 1}, Order([])), Order),
        (Point(1, 2), Point),
        (Place(date(2026, 1, 1), ID), Place),
        ([Place(NOON)], list[Place]),
        ({"a": 1}, Row),
        ({"a": 1, "b": ID}, Row),
        (Struct(1.5, NOON), Struct),
        (Tagged(1.5), Tagged),
        (Listed(1, 2.5), Listed),
        (Model(price=1.5, when=NOON, lines=[Model(price=2)], calledThis="y"), Model),
        (Model(price=1.5, url=pydantic.AnyUrl("https://example.org/")), Model | None),
        ({"a": [Strict(when=NOON, some={1})]}, dict[str, list[Strict]]),
        (Numbers([1.5]), Numbers),
        ("b", Literal["a", "b", 3, None]),
        (3, Literal["a", "b", 3, None]),
        (None, Literal["a", "b", 3, None]),
        (Color.RED, Literal[Color.RED, 7]),
        (b"a", Literal[b"a"]),
        ("a", Literal["a"] | UUID),
        (1, int | str),
        ("1", int | str),
        (1, int | float),
        (1.0, int | float),
        (None, datetime | None),
        ([1], list[int] | dict[str, int]),
        (date(2026, 1, 1), date | datetime),
        (NOON, date | datetime),
        (ID, UUID | str | int | None),
        ("no id", UUID | str | int | None),
        (3, UUID | str | int | None),
        (None, UUID | str | int | None),
        (1.5, UUID | str | int | float),
        (1, UUID | str | float | int),
        (Word.YES, Color | Word),
        ("other", Color | str),
        (b"\x00", bytes | UUID),
        (Model(price=1.5), Model | int),
        (3, Model | int),
        ({"x": 1}, Model | dict[str, int]),
        ({"a": 1}, Row | Model),
        (Crate(1, 2), Annotated[Cat | Crate, "or a cat"]),
        ([Cat("cat", "Tom", NOON, [Dog("dog", "Rex"), Cat("cat", "Kit")])], list[Cat | Dog]),
        ({Mixed.TEXT: [Mixed.PAIR]}, dict[Mixed, list[Mixed]]),
    ],
)
def test_round_trip(value: object, annotation: Any) -> None:
    """A value comes back, by its annotation, equal and of its type."""
    text = codec.dump(value)
    back = codec.load(text, annotation)
    assert back == value
    assert type(back) is type(value) or (type(value), annotation) == (int, float)
    assert codec.load(text.encode(), annotation) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"order_id": 7412, "who": "Zoë"}, '{"order_id":7412,"who":"Zoë"}'),
        ([NOON], '["2026-07-01T12:00:00.123456+00:00"]'),
        (timedelta(hours=25, microseconds=5), '"P1DT3600.000005S"'),
        (-0.0, "-0.0"),
        (Decimal("1.50"), '"1.50"'),
        (b"abc", '"YWJj"'),
        (Tagged(1.5), '{"type":"tagged","unitPrice":1.5}'),
        (Listed(1, 2.5), '["Listed",1,2.5]'),
        (Struct(1.5), '{"price":1.5,"when":null}'),
        (Model(price=1, calledThis="y").named, '"y"'),
    ],
)
def test_text(value: object, text: str) -> None:
    """What is written is what a person would write."""
    assert codec.dump(value) == text


class Text(str):
    pass


class Whole(int):
    def __lt__(self, other: object) -> bool:
        raise AssertionError("never asked")


class Moment(datetime):
    pass


@pytest.mark.parametrize(
    ("value", "annotation", "back"),
    [
        ((1, (2,)), Any, [1, [2]]),
        ({"a"}, Any, ["a"]),
        ({1: "a"}, Any, {"1": "a"}),
        (NOON, Any, "2026-07-01T12:00:00.123456+00:00"),
        (Line(1.5), Any, {"price": 1.5, "count": 1}),
        (Color.RED, Any, "red"),
        (Text("a"), str, "a"),
        (Whole(3), int, 3),
        ({Text("a"): Whole(3)}, dict[str, int], {"a": 3}),
        (Moment(2026, 7, 1, tzinfo=UTC), datetime, datetime(2026, 7, 1, tzinfo=UTC)),
        (OrderedDict(a=1), dict[str, int], {"a": 1}),
        (defaultdict(int, a=1), dict[str, int], {"a": 1}),
        (str(ID), UUID | str, ID),
        (1, float, 1.0),
        ({"price": 1, "color": "red"}, Line, Line(1.0)),
        (memoryview(b"a"), bytes, b"a"),
    ],
)
def test_documented_changes(value: object, annotation: Any, back: object) -> None:
    """A value changes only as the docstring of the codec says."""
    found = codec.load(codec.dump(value), annotation)
    assert (found, type(found)) == (back, type(back))


def test_fixed_offset() -> None:
    """A zone comes back as the offset that it had at that moment, also in the hour that comes twice."""
    for fold in (0, 1):
        twice = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold)
        back = codec.load(codec.dump(twice), datetime)
        assert back.utcoffset() == twice.utcoffset()


LOOP: list[Any] = []
LOOP.append([LOOP])
RING = Order([])
RING.parent = RING
DEEP: Any = 1
for _ in range(100):
    DEEP = [DEEP]


class Wicked:
    """Lies about its class and raises whatever it is asked."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise ZeroDivisionError

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


class WickedType(type):
    def __getattr__(cls, name: str) -> Any:
        raise ZeroDivisionError

    def __hash__(cls) -> int:
        raise ZeroDivisionError


class OfWickedType(metaclass=WickedType):
    pass


@dataclass
class Broken:
    a: int

    def __post_init__(self) -> None:
        del self.a


class Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class HatefulType(type):
    def __getattr__(cls, name: str) -> Any:
        raise Mute


class OfHatefulType(metaclass=HatefulType):
    pass


class BrokenModel(pydantic.BaseModel):
    a: int

    @pydantic.field_serializer("a")
    def written(self, _: int) -> int:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (float("nan"), "order", "is nan"),
        ([None, 1.5, float("inf")], "order[2]", "is inf"),
        ({"a": {"b": -float("inf")}}, "order['a']['b']", "is -inf"),
        (Order([Line(1), Line(float("nan"))]), "order.lines[1].price", "is nan"),
        (Order([], {"a": float("nan")}), "order.tags['a']", "is nan"),
        (Struct(float("nan")), "order.price", "is nan"),
        (Listed(1, float("nan")), "order[1]", "is nan"),
        (Model(price=1, lines=[Model(price=float("nan"))]), "order.lines[0].price", "is nan"),
        (
            Model(price=1, lines=[Model(price=1, when=datetime(2026, 1, 1))]),
            "order.lines[0].when",
            "time zone",
        ),
        (Numbers([1, float("nan")]), "order[1]", "is nan"),
        (Secretive(password=pydantic.SecretStr("x")), "order.password", "is a secret"),
        ([pydantic.SecretStr("x")], "order[0]", "is a secret"),
        (Decimal("NaN"), "order", "is NaN"),
        (Decimal("sNaN"), "order", "is sNaN"),
        ({"a": Decimal("-Infinity")}, "order['a']", "is -Infinity"),
        ("a\0b", "order", "NUL"),
        ({"a": ["b", "\0"]}, "order['a'][1]", "NUL"),
        ({"a\0": 1}, r"order['a\x00']", "NUL"),
        ("\ud800", "order", "surrogate"),
        ({"a": ("\udfff",)}, "order['a'][0]", "surrogate"),
        ({"\ud800": 1}, r"order['\ud800']", "surrogate"),
        (Text("\0"), "order", "NUL"),
        (datetime(2026, 1, 1), "order", r"make it aware, as in datetime.now\(UTC\)"),
        ({"when": [datetime(2026, 1, 1)]}, "order['when'][0]", "time zone"),
        ({datetime(2026, 1, 1): 1}, "order[datetime.datetime(2026, 1, 1, 0, 0)]", "time zone"),
        (Struct(1, datetime(2026, 1, 1)), "order.when", "time zone"),
        (Moment(2026, 1, 1), "order", "time zone"),
        (datetime.min.replace(tzinfo=timezone(timedelta(seconds=1))), "order", "out of range"),
        (time(1, tzinfo=BERLIN), "order", "without a fixed offset"),
        (time(1, tzinfo=timezone(timedelta(seconds=1))), "order", "whole minutes"),
        (10**4300, "order", "4300 digits"),
        ([-(10**9999)], "order[0]", "4300 digits"),
        ({10**4300: 1}, "order", "4300 digits"),
        ((i for i in range(3)), "order", "generator, .* pass a list"),
        ({"a": range(3)}, "order['a']", "range, .* pass a list"),
        (deque([1]), "order", "deque, .* pass a list"),
        ([object()], "order[0]", "object, .* or give Dibs a codec"),
        (1j, "order", "complex"),
        (Path("a"), "order", "Path"),
        (UserDict(a=1), "order", "UserDict"),
        (SimpleNamespace(a=1), "order", "SimpleNamespace"),
        (MagicMock(), "order", "MagicMock"),
        (Order, "order", "type"),
        (test_text, "order", "function"),
        (msgspec.Raw(b"{"), "order", "Raw"),
        (Line(msgspec.UNSET), "order.price", "UnsetType"),  # type: ignore[arg-type]
        ({None: 1}, "order", "a key of type NoneType"),
        ({"a": {True: 1}}, "order['a']", "a key of type bool"),
        ({(1, 2): 1}, "order", "a key of type tuple"),
        ({Mixed.PAIR: 1}, "order", "a key of type Mixed"),
        ({float("nan"): 1}, "order[nan]", "as a key is nan"),
        ({1: "a", "1": "b"}, "order['1']", "twice"),
        ({ID: "a", str(ID): "b"}, f"order['{ID}']", "twice"),
        (LOOP, "order[0][0]", "no end"),
        (RING, "order.parent", "no end"),
        (DEEP, "order" + "[0]" * 99, "nested more than 99 deep"),
        (Wicked(), "order", "Wicked"),
        ([Wicked()], "order[0]", "Wicked"),
        ({Wicked(): 1}, "order", "a key of type Wicked"),
        (OfWickedType(), "order", "ZeroDivisionError"),
        (OfHatefulType(), "order", "Mute"),
        (Model(price=1, anything=Struct(1.5)), "order", "PydanticSerializationError: .*unknown type"),
        (Model(price=1, anything=Line(float("nan"))), "order.anything.price", "is nan"),
        (Model(price=1, anything=[{1: float("nan")}]), "order.anything[0][1]", "is nan"),
        (Model(price=1, when=datetime(1850, 1, 1, tzinfo=BERLIN)), "order.when", "would round it"),
        (Broken(1), "order", "AttributeError: .*no attribute 'a'"),
        (BrokenModel(a=1), "order", "PydanticSerializationError: .*ZeroDivisionError"),
    ],
    ids=lambda value: ascii(value)[:40] if type(value) is str else type(value).__name__,
)
def test_refused(value: object, path: str, problem: str) -> None:
    """What cannot be stored, or would not come back, is refused with the path to it."""
    with pytest.raises(InvalidArgument, match=problem) as refusal:
        codec.dump(value, path="order")
    assert refusal.value.path == path
    str(refusal.value).encode()


def test_refused_without_path() -> None:
    """The path of a value that has no name of its own starts inside it."""
    for value, path in ((Order([Line(float("nan"))]), "lines[0].price"), ([float("nan")], "[0]")):
        with pytest.raises(InvalidArgument) as refusal:
            codec.dump(value)
        assert refusal.value.path == path


def test_deepest() -> None:
    """99 levels can be written and read; plain and not plain values are counted alike."""
    for innermost in (1, NOON):
        value: Any = innermost
        for _ in range(99):
            value = [value]
        assert codec.load(codec.dump(value), Any)
        with pytest.raises(InvalidArgument, match="99 deep"):
            codec.dump([value])


def test_shared_is_no_loop() -> None:
    """The same list twice in a value is no reference back."""
    shared = [NOON]
    assert codec.load(codec.dump([shared, shared]), Any) == [["2026-07-01T12:00:00.123456+00:00"]] * 2
