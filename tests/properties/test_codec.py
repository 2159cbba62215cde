"""What holds for every value that the codec is given, and for every text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from typing import Any, NamedTuple, Optional, TypeAlias, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dibs.codec import JsonCodec, _carefully, _NotPlain, _quickly
from dibs.errors import ConfigurationError, InvalidArgument

codec = JsonCodec()
often = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    HUGE = 2**62


class Mixed(Enum):
    RATIO = 1.5
    PAIR = (1, "a")
    DAY = date(2026, 1, 1)


class Rights(Flag):
    READ = 1
    WRITE = 2


# -- every supported type, nested two deep ----------------------------------------------------------


class Kind(NamedTuple):
    """An annotation, and values that it is for."""

    annotation: Any
    values: st.SearchStrategy[Any]


def is_unfolded(moment: datetime) -> bool:
    """Python calls a moment in an hour that comes twice unequal to itself in another zone."""
    return moment.replace(fold=0).utcoffset() == moment.replace(fold=1).utcoffset()


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
datetimes = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.timezones() | offsets | st.just(UTC))

HASHABLE = [
    Kind(bool, st.booleans()),
    Kind(int, st.integers() | st.integers(-(2**200), 2**200)),
    Kind(float, st.floats(allow_nan=False, allow_infinity=False)),
    Kind(str, text),
    Kind(bytes, st.binary()),
    Kind(datetime, datetimes.filter(is_unfolded)),
    Kind(date, st.dates()),
    Kind(time, st.times(timezones=st.just(UTC) | st.none())),
    Kind(timedelta, st.timedeltas()),
    Kind(UUID, st.uuids()),
    Kind(Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    Kind(Color, st.sampled_from(Color)),
    Kind(Size, st.sampled_from(Size)),
    Kind(Mixed, st.sampled_from(Mixed)),
    Kind(Rights, st.sampled_from([Rights(0), Rights.READ, Rights.READ | Rights.WRITE])),
]
KEYS = [kind for kind in HASHABLE if kind.annotation not in (bool, Mixed, Rights)]
LEAVES = [
    *HASHABLE,
    Kind(None, st.none()),
    Kind(Any, st.none() | st.booleans() | text | st.lists(st.integers())),
    Kind(int | str | None, st.integers() | text | st.none()),
    Kind(date | datetime, st.dates() | datetimes.filter(is_unfolded)),
    Kind(UUID | int, st.uuids() | st.integers()),
]


def of_fields(make: Callable[[str, dict[str, Any]], Any], build: Callable[[Any, dict[str, Any]], Any]) -> Any:
    """Return what makes a class of two kinds, and its instances."""

    def kind(first: Kind, second: Kind) -> Kind:
        made = make("Made", {"first": first.annotation, "second_one": second.annotation})
        values = st.fixed_dictionaries({"first": first.values, "second_one": second.values})
        return Kind(made, values.map(lambda fields: build(made, fields)))

    return kind


def model(name: str, fields: dict[str, Any]) -> Any:
    create: Any = pydantic.create_model
    return create(name, **{key: (kind, ...) for key, kind in fields.items()})


def is_for_models(kind: Kind) -> bool:
    """Models have their own rules for the other types: bytes must be UTF-8, and offsets are rounded."""
    return kind.annotation in (int, float, str, bool, date, timedelta, UUID, Decimal, Color, Size)


typed_dict: Any = TypedDict
named_tuple: Any = NamedTuple
dataclass_of = of_fields(lambda n, f: dataclasses.make_dataclass(n, f.items()), lambda made, f: made(**f))
struct_of = of_fields(lambda n, f: msgspec.defstruct(n, list(f.items())), lambda made, f: made(**f))
typeddict_of = of_fields(lambda n, f: typed_dict(n, f), lambda made, f: f)
namedtuple_of = of_fields(lambda n, f: named_tuple(n, f.items()), lambda made, f: made(**f))
model_of = of_fields(model, lambda made, f: made(**f))


def of(origin: Any, *arguments: Any) -> Any:
    return origin[arguments]


def or_none(annotation: Any) -> Any:
    return Optional[annotation]  # noqa: UP045 - None | None would be neither


def few(values: st.SearchStrategy[Any]) -> Any:
    return st.lists(values, max_size=3)


def compounds(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    hashable, keys = st.sampled_from(HASHABLE), st.sampled_from(KEYS)
    return st.one_of(
        st.builds(lambda k: Kind(of(list, k.annotation), few(k.values)), inner),
        st.builds(lambda k: Kind(of(tuple, k.annotation, ...), few(k.values).map(tuple)), inner),
        st.builds(
            lambda a, b: Kind(of(tuple, a.annotation, b.annotation), st.tuples(a.values, b.values)),
            inner,
            inner,
        ),
        st.builds(lambda k: Kind(of(set, k.annotation), few(k.values).map(set)), hashable),
        st.builds(lambda k: Kind(of(frozenset, k.annotation), few(k.values).map(frozenset)), hashable),
        st.builds(
            lambda key, k: Kind(
                of(dict, key.annotation, k.annotation), st.dictionaries(key.values, k.values, max_size=3)
            ),
            keys,
            inner,
        ),
        st.builds(lambda k: Kind(or_none(k.annotation), k.values | st.none()), inner),
        st.builds(dataclass_of, inner, inner),
        st.builds(struct_of, st.sampled_from(LEAVES[:13]), st.sampled_from(LEAVES[:13])),
        st.builds(typeddict_of, inner, inner),
        st.builds(namedtuple_of, inner, inner),
        st.builds(model_of, *[st.sampled_from([kind for kind in HASHABLE if is_for_models(kind)])] * 2),
    )


leaves = st.sampled_from(LEAVES)
kinds = compounds(leaves | compounds(leaves))


@often
@given(st.data(), kinds)
def test_round_trip(data: st.DataObject, kind: Kind) -> None:
    """Every value of every supported type comes back equal, nested in every other."""
    value = data.draw(kind.values)
    written = codec.dump(value)
    assert codec.load(written, kind.annotation) == value
    assert json.loads(written) == codec.load(written, Any)


@often
@given(datetimes)
def test_instants(moment: datetime) -> None:
    """A datetime of any zone comes back aware and at the same instant, to the microsecond."""
    back = codec.load(codec.dump(moment), datetime)
    assert back.tzinfo is not None
    assert back.astimezone(UTC) == moment.astimezone(UTC)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@often
@given(json_values)
def test_quick_and_careful(value: Any) -> None:
    """The quick way writes what the careful one does, and nothing that the careful one refuses."""
    try:
        careful = _carefully(value, "")
    except InvalidArgument:
        careful = ""
    try:
        quick = _quickly(value)
    except (_NotPlain, UnicodeEncodeError):
        quick = careful
    assert quick == careful


# -- what is refused --------------------------------------------------------------------------------


@dataclasses.dataclass
class Holder:
    here: Any
    before: int = 1


class Struct(msgspec.Struct):
    here: Any
    before: float = 1.5


class Model(pydantic.BaseModel):
    here: Any
    before: str = ""


Inward: TypeAlias = tuple[str, Callable[[Any], Any]]
INWARD: list[Inward] = [
    ("[0]", lambda inner: [inner]),
    ("[2]", lambda inner: (1, "a", inner)),
    ("['a']", lambda inner: {"b": 1.5, "a": inner}),
    ("['it\\'s \"é\"']", lambda inner: {'it\'s "é"': inner}),
    ("[7]", lambda inner: {7: inner}),
    (".here", Holder),
    (".here", lambda inner: Model(here=inner)),
]
# No model knows what to do with a Struct inside it.
OUTERMOST = [*INWARD[:-1], (".here", Struct)]
BAD = [float("nan"), float("inf"), "\0", "\ud800", Decimal("NaN"), datetime(2026, 1, 1)]


@often
@given(
    st.lists(st.sampled_from(OUTERMOST), max_size=2),
    st.lists(st.sampled_from(INWARD), max_size=4),
    st.sampled_from([*BAD, {"\0": 1}]),
)
def test_path(outermost: list[Inward], inward: list[Inward], bad: object) -> None:
    """However deep inside, what is refused is named by the path that leads to it."""
    value, path = bad, "['\\x00']" if bad == {"\0": 1} else ""
    for step, wrap in reversed(outermost + inward):
        value, path = wrap(value), step + path
    with pytest.raises(InvalidArgument) as refusal:
        codec.dump(value, path="order")
    assert refusal.value.path == "order" + path


class Wicked:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise LookupError

    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)

    def __hash__(self) -> int:
        return 1


class Shifty(dict[Any, Any]):
    def items(self) -> Any:
        raise LookupError

    def __iter__(self) -> Any:
        raise LookupError

    values = keys = __len__ = items


def loop(inner: Any) -> list[Any]:
    ring = [inner]
    ring.append({"again": [ring]})
    return ring


weird = st.recursive(
    st.sampled_from([*BAD, {None: 1}, Shifty(a=1), Wicked, object, lambda: 1, ..., NotImplemented, 1j, range(9)])
    | st.builds(Wicked)
    | st.from_type(type).filter(lambda kind: kind is not type)
    | st.builds(iter, st.just([1]))
    | st.builds(pow, st.just(10), st.sampled_from([4299, 4300, 20_000]))
    | st.one_of([kind.values for kind in LEAVES]),
    lambda inner: st.one_of(
        few(inner),
        few(inner).map(tuple),
        st.dictionaries(st.one_of([kind.values for kind in HASHABLE]) | st.none(), inner, max_size=3),
        inner.map(lambda value: Shifty({1: value})),
        inner.map(Holder),
        inner.map(lambda value: Holder(loop(value))),
        inner.map(Struct),
        inner.map(lambda value: Model(here=value)),
        inner.map(loop),
        st.builds(lambda value, depth: nested(value, depth), inner, st.sampled_from([50, 98, 99, 2000, 100_000])),
    ),
    max_leaves=8,
)


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@often
@given(weird)
def test_whatever_it_is(value: Any) -> None:
    """Whatever it is given, the codec writes JSON that can be read, or raises InvalidArgument."""
    try:
        written = codec.dump(value, path="order")
    except InvalidArgument as refused:
        path, said = refused.path, str(refused)
    else:
        codec.load(written, Any)
        return
    assert path.startswith("order")
    assert said.encode()


@often
@given(json_values.map(json.dumps) | st.text() | st.binary(), st.sampled_from(LEAVES) | kinds)
def test_whatever_it_says(written: str | bytes, kind: Kind) -> None:
    """Whatever text it is given, the codec reads it by the annotation or raises InvalidArgument."""
    try:
        codec.load(written, kind.annotation)
    except InvalidArgument as refused:
        str(refused)


@often
@given(st.lists(st.sampled_from([*LEAVES, Kind(bytes | None, st.none())]), min_size=2, max_size=4))
def test_unions(options: list[Kind]) -> None:
    """A union of any of the supported types is read, or refused as soon as it is looked at."""
    annotation = options[0].annotation
    for option in options[1:]:
        annotation = or_none(annotation) if option.annotation is None else annotation | option.annotation
    with suppress(InvalidArgument, ConfigurationError):
        codec.load("null", annotation)
