"""A value in terms of plain JSON values: how each type is written, and what is refused, with the path to it.

This is the careful way, taken when a value holds more than plain types or the quick way of `codec` failed. It
never changes a value silently: what it changes, `codec` documents; what it cannot carry, it refuses.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from dibs.limits import DEEPEST, MOST_DIGITS, problem_with_text

_TOO_BIG = 10**MOST_DIGITS
_MINUTE = timedelta(minutes=1)

#: The ids of what a value is inside of, outermost first.
Above: TypeAlias = tuple[int, ...]


class Step(NamedTuple):
    """One step inward: an attribute, or the key or index of an item."""

    to: Any
    attribute: bool = False

    def __str__(self) -> str:
        return f".{self.to}" if self.attribute else f"[{self.to!r}]"


class Refused(ValueError):
    """A value, or one inside it, cannot be written; `steps` lead to it, the innermost first."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.steps: list[Step] = []
        super().__init__(problem)

    def through(self, step: Step) -> Refused:
        """Note, on the way out, which step had led inward."""
        self.steps.append(step)
        return self

    def path(self, start: str) -> str:
        """Return the way from `start`, such as `order.lines[3].price`."""
        return (start + "".join(str(step) for step in reversed(self.steps))).removeprefix(".")


def plain(value: Any, above: Above = ()) -> Any:
    """Return `value` in terms of dict, list, str, int, float, bool and None, or raise `Refused`."""
    # The class is asked, never the object: an object may lie about its class, or raise when it is asked.
    kind = type(value)
    leaf = _leaf(kind)
    if leaf is not None:
        return leaf(value)
    compound = _compound(kind)
    if compound is None:
        raise Refused(_unknown(kind))
    if id(value) in above:
        raise Refused("refers back to something that it is inside of, so it would have no end")
    if len(above) >= DEEPEST:
        raise Refused(f"is nested more than {DEEPEST} deep")
    return compound(value, (*above, id(value)))


# -- leaves: a value with nothing inside it -------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _text(value: str) -> str:
    if problem := problem_with_text(value):
        raise Refused(problem)
    return str.__str__(value)


def _integer(value: int) -> int:
    exact = int.__int__(value)
    if not -_TOO_BIG < exact < _TOO_BIG:
        raise Refused(f"has more than {MOST_DIGITS} digits, which a worker could not read")
    return exact


def _float(value: float) -> float:
    exact = float.__float__(value)
    if not math.isfinite(exact):
        raise Refused(f"is {exact}, and JSON has no word for that")
    return exact


def _decimal(value: Decimal) -> str:
    if not Decimal.is_finite(value):
        raise Refused(f"is {Decimal.__str__(value)}, which is not a number to be stored")
    return Decimal.__str__(value)


def _datetime(value: datetime) -> str:
    offset = datetime.utcoffset(value)
    if offset is None:
        raise Refused("has no time zone: make it aware, as in datetime.now(UTC)")
    if offset % _MINUTE:
        # ISO 8601 has whole minutes; the local mean times of the 19th century have not.
        try:
            value = datetime.astimezone(value, UTC)
        except OverflowError:
            raise Refused("is out of range when it is told in UTC") from None
    return datetime.isoformat(value)


def _time(value: time) -> str:
    offset = time.utcoffset(value)
    if value.tzinfo is not None and (offset is None or offset % _MINUTE):
        raise Refused("has a time zone without a fixed offset in whole minutes: use a datetime, or no zone")
    return time.isoformat(value)


def _timedelta(value: timedelta) -> Any:
    return msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))


def _bytes(value: bytes | bytearray | memoryview) -> Any:
    return msgspec.to_builtins(bytes(value))


_LEAVES: dict[type, Callable[[Any], Any]] = {
    type(None): _same,
    bool: _same,
    int: _integer,
    float: _float,
    str: _text,
    Decimal: _decimal,
    datetime: _datetime,
    date: date.isoformat,
    time: _time,
    timedelta: _timedelta,
    UUID: UUID.__str__,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
}


def _leaf(kind: type) -> Callable[[Any], Any] | None:
    """Return how `kind` is written, or None if it is no leaf; a subclass is written as its base."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    if issubclass(kind, Enum):
        return None
    return next((_LEAVES[base] for base in kind.__mro__ if base in _LEAVES), None)


# -- compounds: values inside a value -------------------------------------------------------------


def _dict(value: dict[Any, Any], above: Above) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for key, item in dict.items(value):
        name = _key(key)
        step = Step(key if type(key) is int else name)
        if name in written:
            raise Refused("is in it twice: two keys are written the same way").through(step)
        try:
            written[name] = plain(item, above)
        except Refused as refused:
            raise refused.through(step) from None
    return written


def _key(key: Any) -> str:
    """Return how a key is written: JSON has only text for keys, so numbers and dates become text."""
    kind = type(key)
    if kind is not bool and key is not None and (issubclass(kind, Enum) or _leaf(kind)):
        try:
            written = plain(key)
        except Refused as refused:
            problem = Refused(f"as a key {refused.problem}")
            # Only what has a repr of its own kind, and one of a length to be read.
            raise problem.through(Step(key)) if kind in _LEAVES and kind is not int else problem from None
        if isinstance(written, str):
            return written
        if type(written) in (int, float):
            return msgspec.json.encode(written).decode()
    raise Refused(f"has a key of type {kind.__qualname__}, and JSON has only text for keys: use str or int")


def _items(value: Iterable[Any], above: Above) -> list[Any]:
    written = []
    for index, item in enumerate(value):
        try:
            written.append(plain(item, above))
        except Refused as refused:
            raise refused.through(Step(index)) from None
    return written


def _attributes(value: Iterable[tuple[str, Any]], above: Above) -> dict[str, Any]:
    written = {}
    for name, item in value:
        try:
            written[name] = plain(item, above)
        except Refused as refused:
            raise refused.through(Step(name, attribute=True)) from None
    return written


def _enum(value: Enum, above: Above) -> Any:
    return plain(value.value, above)


def _dataclass(value: Any, above: Above) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(value)]
    return _attributes(((name, getattr(value, name)) for name in names), above)


def _struct(value: msgspec.Struct, above: Above) -> Any:
    config = value.__struct_config__
    items = [getattr(value, name) for name in value.__struct_fields__]
    if config.array_like:
        return [*([] if config.tag is None else [config.tag]), *_items(items, above)]
    named = zip(value.__struct_encode_fields__, items, strict=True)
    written = _attributes(((name, item) for name, item in named if item is not msgspec.UNSET), above)
    return written if config.tag_field is None else {config.tag_field: config.tag, **written}


def _model(model: Any, above: Above) -> Any:
    # A model's own serializers say how it is written, and by then a naive datetime is mere text, a secret is
    # masked and a NaN may be null. So its Python values are looked through first.
    try:
        _look_through(model.model_dump(round_trip=True))
        return plain(model.model_dump(mode="json", by_alias=True, round_trip=True), above)
    except Refused as refused:
        refused.steps = _as_attributes(model, refused.steps)
        raise


def _look_through(value: Any) -> None:
    kind = type(value)
    if leaf := _leaf(kind):
        leaf(value)
        if issubclass(kind, datetime) and datetime.utcoffset(value) % _MINUTE:  # type: ignore[operator]
            raise Refused("has an offset that is not in whole minutes, and the model would round it: use UTC")
    elif hasattr(kind, "get_secret_value"):
        raise Refused(_unknown(kind))
    inside: Iterable[tuple[Any, Any]] = ()
    if kind is dict:
        inside = value.items()
    elif kind in (list, tuple, set, frozenset):
        inside = enumerate(value)
    for key, item in inside:
        if isinstance(key, str):
            _key(key)
        try:
            _look_through(item)
        except Refused as refused:
            raise refused.through(Step(key)) from None


def _as_attributes(model: Any, steps: list[Step]) -> list[Step]:
    """Return the steps through a dumped model as steps through the model itself, which has attributes."""
    at, renamed = model, []
    for step in reversed(steps):
        if isinstance(at, dict):
            renamed.append(step)
            at = at.get(step.to)
        elif isinstance(step.to, int):
            renamed.append(step)
            at = at[step.to] if isinstance(at, list | tuple) else None
        else:
            renamed.append(Step(step.to, attribute=at is not None))
            at = getattr(at, step.to, None)
    return renamed[::-1]


def is_model(kind: type) -> bool:
    """Tell whether `kind` is a pydantic model; pydantic itself is never imported."""
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_dump")


_COMPOUNDS: dict[type, Callable[[Any, Above], Any]] = {
    dict: _dict,
    list: _items,
    tuple: _items,
    set: _items,
    frozenset: _items,
    msgspec.Struct: _struct,
}


def _compound(kind: type) -> Callable[[Any, Above], Any] | None:
    if kind in _COMPOUNDS:
        return _COMPOUNDS[kind]
    if issubclass(kind, Enum):
        return _enum
    if is_model(kind):
        return _model
    if dataclasses.is_dataclass(kind):
        return _dataclass
    return next((_COMPOUNDS[base] for base in kind.__mro__ if base in _COMPOUNDS), None)


def _unknown(kind: type) -> str:
    if hasattr(kind, "get_secret_value"):
        return "is a secret: it would be stored for all to read, or masked and so lost"
    advice = "pass a list" if hasattr(kind, "__iter__") else "pass what it is made of"
    return f"is of type {kind.__qualname__}, which cannot be written as JSON: {advice}, or give Dibs a codec"
