"""How arguments and results become JSON text, and come back as what they were.

The text is for people too: names, plain numbers, text as it is. A value that would not come back, or not on
every database, is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from dibs.decoding import reader
from dibs.encoding import Refused, plain
from dibs.errors import InvalidArgument
from dibs.limits import DEEPEST


class Codec(Protocol):
    """What `Dibs(codec=…)` replaces."""

    def dump(self, value: object, *, path: str = "") -> str:
        """Return `value` as JSON text, or raise `InvalidArgument` with the path to what cannot be written.

        `path` is where `value` itself stands, such as the name of the parameter.
        """
        ...

    def load(self, text: str | bytes, annotation: Any) -> Any:
        """Return what `text` says as an `annotation`, or raise `InvalidArgument` if it does not fit.

        An annotation that no text could fit is a `ConfigurationError`.
        """
        ...


class JsonCodec:
    """The codec that is used unless another is given.

    What it writes, and reads by annotation: None, bool, int of up to 4,300 digits, finite float, str, bytes,
    datetime, date, time, timedelta, UUID, Decimal, enums, list, tuple, set, frozenset, dict, dataclasses,
    TypedDicts, NamedTuples, msgspec Structs, pydantic models, Literal, and unions of these.

    What changes on the way, since JSON has no word for it:

    - without an annotation what comes back is what JSON has: a tuple or set is a list, a key is a str, a
      datetime, UUID, Decimal or bytes is a str, a dataclass is a dict, an enum is its value;
    - a datetime comes back at the same instant with a fixed offset: `ZoneInfo("Europe/Berlin")` becomes
      `+01:00`; an offset that is not in whole minutes becomes UTC;
    - an instance of a subclass (of str, int, float, datetime, dict, …) comes back as one of the base;
    - a pydantic model is written and read by its own rules;
    - for a float 1 becomes 1.0;
    - in a union, text comes back as the first type that it fits and as `str` if it fits no other: given
      `UUID | str`, a str that looks like a UUID is one. An object that fits two classes is refused;
    - fields that a record does not have are left out.

    What is refused: NaN and infinities (of float and of Decimal), NUL and lone surrogates in text, naive
    datetimes, a time in a zone without a fixed offset, keys that are None, bool or compound, two keys that
    are written alike, more than 99 levels, and anything else.

    >>> JsonCodec().dump({"who": "Zoë", "tags": ("a", "b")})
    '{"who":"Zoë","tags":["a","b"]}'
    >>> JsonCodec().load('["a","b"]', tuple[str, str])
    ('a', 'b')
    """

    def __init__(self) -> None:
        self._readers: dict[int, tuple[Any, Callable[[str | bytes], Any]]] = {}

    def dump(self, value: object, *, path: str = "") -> str:
        try:
            return _quickly(value)
        except Exception:  # noqa: BLE001 - whatever it was, the careful way says it better
            return _carefully(value, path)

    def load(self, text: str | bytes, annotation: Any) -> Any:
        # By identity: hashing an annotation takes longer than reading most texts, some can't be hashed, and
        # `A | B == B | A`, though they are not read alike.
        known = self._readers.get(id(annotation))
        if known is None or known[0] is not annotation:
            known = self._learn(annotation)
        return known[1](text)

    def _learn(self, annotation: Any) -> tuple[Any, Callable[[str | bytes], Any]]:
        known = (annotation, reader(annotation))
        if len(self._readers) >= _MOST_READERS:
            self._readers.clear()  # somebody makes annotations as they go
        self._readers[id(annotation)] = known
        return known


_MOST_READERS = 4096

_encode = msgspec.json.Encoder().encode
_LEAVES = frozenset({int, str, bool, type(None), float})
_PLAIN = _LEAVES | {dict, list, tuple}


class _NotPlain(Exception):
    """The quick way cannot tell: take the careful one."""


def _quickly(value: Any) -> str:
    """Return the text for a value of plain types alone, at the speed of msgspec; raise for any other.

    Types are looked at in bulk, by `set(map(type, …))`. What is wrong with a text or a float is not looked
    for in the value but in what was written: 1.5 µs for a small dict, which takes the careful way 5.
    """
    kinds = {type(value)}
    if not kinds <= _LEAVES:
        _survey((value,), kinds, 0)
    text = _encode(value).decode()
    if "\\u0000" in text or (float in kinds and "null" in text):
        raise _NotPlain
    return text


def _survey(values: Iterable[Any], kinds: set[type], depth: int) -> None:
    """Gather in `kinds` the types of `values` and of all that is inside them."""
    here = set(map(type, values))
    kinds |= here
    if here <= _LEAVES:
        return
    if not here <= _PLAIN or depth >= DEEPEST:
        raise _NotPlain
    for value in values:
        kind = type(value)
        if kind is dict:
            if value and set(map(type, value)) != {str}:
                raise _NotPlain
            _survey(value.values(), kinds, depth + 1)
        elif kind is list or kind is tuple:
            _survey(value, kinds, depth + 1)


def _carefully(value: object, path: str) -> str:
    try:
        return _encode(plain(value)).decode()
    except Refused as refused:
        raise InvalidArgument(refused.path(path), refused.problem) from None
    except Exception as error:
        # Code of the user's own ran: a property, a serializer, a metaclass. Whatever it raised is the answer.
        raise InvalidArgument(path, f"cannot be written as JSON ({_said(error)})") from error


def _said(error: Exception) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}".encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001 - this error's __str__ is the user's as well
        return name
