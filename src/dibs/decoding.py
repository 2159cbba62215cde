"""How an annotation is read from JSON: by msgspec where it can, through stand-ins where it cannot.

msgspec reads nearly every annotation; not a union of two types that are both written as text or both as
objects, not an enum of anything but all str or all int, and not the models of another library. A **stand-in**
is a class put in the place of such an annotation, at which msgspec turns to this file.

What cannot be read at all is a `ConfigurationError` as soon as the annotation is looked at.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, Union, get_args, get_origin

import msgspec
import msgspec.inspect

from dibs.encoding import Refused, is_model, plain
from dibs.errors import ConfigurationError, InvalidArgument


def reader(annotation: Any) -> Callable[[str | bytes], Any]:
    """Return what reads JSON text as `annotation`, and raises `InvalidArgument` if it does not fit."""
    decode = msgspec.json.Decoder(_readable(annotation, {}), dec_hook=_read_custom).decode

    def read(text: str | bytes) -> Any:
        try:
            return decode(text)
        except Exception as error:
            raise _unfit(error) from error

    return read


# -- what does not fit, and where ------------------------------------------------------------------

_WHERE = re.compile(r"(?P<problem>.*?) - at `(?P<key>key` in `)?\$(?P<path>.*)`", re.DOTALL)


def join(start: str, path: str) -> str:
    """Return the path that goes on from `start`.

    >>> join("order", "lines[3]"), join("lines", "[3]"), join("", "lines")
    ('order.lines[3]', 'lines[3]', 'lines')
    """
    return f"{start}.{path}" if start and path and not path.startswith("[") else start + path


def _unfit(error: Exception) -> InvalidArgument:
    """Return an error of reading as one that says where, also when a stand-in has read inside a reader."""
    if isinstance(error, RecursionError):
        return InvalidArgument("", "is nested too deep to be read")
    found = _WHERE.fullmatch(str(error))
    path = found["path"].removeprefix(".") if found else ""
    inner = error if isinstance(error, InvalidArgument) else error.__cause__
    if isinstance(inner, InvalidArgument):
        return InvalidArgument(join(path, inner.path), inner.problem)
    problem = found["problem"] if found else str(error)
    if found and found["key"]:
        problem = f"a key does not fit: {problem}"
    elif isinstance(error, msgspec.MsgspecError):
        problem = _lower(problem)
    else:
        problem = f"{type(error).__name__}: {problem}"
    return InvalidArgument(path, problem)


def _lower(problem: str) -> str:
    return problem[:1].lower() + problem[1:]


# -- annotations -----------------------------------------------------------------------------------

#: The stand-ins for records and aliases, each of which may be inside itself.
_Known: typing.TypeAlias = dict[Any, type]

_SAME_AS: dict[Any, Any] = {object: Any, typing.LiteralString: str, collections.abc.Iterable: list}


def _readable(annotation: Any, known: _Known) -> Any:
    """Return what msgspec is to read in place of `annotation`, or raise `ConfigurationError`."""
    trouble = _trouble_with(annotation)
    if trouble is None:
        return annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _constants(_name(annotation), arguments)
    if origin is Annotated:
        return Annotated[_readable(arguments[0], known), *annotation.__metadata__]
    if origin in (Union, types.UnionType):
        return _union(arguments, known)
    if origin is not None and _trouble_with(generic := _SAME_AS.get(origin, origin)) is None:
        return generic[tuple(each if each is ... else _readable(each, known) for each in arguments)]
    if hasattr(annotation, "__value__"):
        return known.get(annotation) or _alias(annotation, known)
    if isinstance(annotation, typing.NewType):
        return _readable(annotation.__supertype__, known)
    if isinstance(annotation, typing.Hashable) and annotation in _SAME_AS:
        return _SAME_AS[annotation]
    if isinstance(annotation, type):
        if issubclass(annotation, Enum) and len(annotation):
            return _constants(_name(annotation), annotation)
        if (shape := _shape(annotation)) is not None:
            return known.get(annotation) or _record(annotation, shape, known)
    raise ConfigurationError(f"{_name(annotation)} cannot be read from JSON ({trouble})")


def _trouble_with(annotation: Any) -> str | None:
    """Return why msgspec cannot read this annotation as it is, or None if it can."""
    try:
        msgspec.json.Decoder(annotation)
        customs = _customs(annotation)
    except Exception as error:  # noqa: BLE001 - msgspec resolves names, and they are the user's
        return str(error)
    strangers = [kind for kind in customs if not isinstance(kind, _StandIn) and not is_model(kind)]
    return f"there is no rule for {_name(strangers[0])}" if strangers else None


def _customs(annotation: Any) -> list[type]:
    """Return the classes in an annotation that msgspec has no rule for."""
    found, seen = [], set()
    left: list[Any] = [msgspec.inspect.type_info(annotation)]
    while left:
        node = left.pop()
        if isinstance(node, tuple):
            left.extend(node)
        elif isinstance(node, msgspec.inspect.CustomType):
            found.append(node.cls)
        elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field) and id(node) not in seen:
            seen.add(id(node))
            left.extend(getattr(node, name) for name in node.__struct_fields__ if not name.startswith("default"))
    return found


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


# -- stand-ins -------------------------------------------------------------------------------------


class _StandIn(type):
    """The type of stand-ins. msgspec asks whether what was read is an instance: whatever it is, it is."""

    read: Callable[[Any], Any]

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def _stand_in(name: str, read: Callable[[Any], Any]) -> _StandIn:
    return _StandIn(name, (), {"read": staticmethod(read)})


def _read_custom(kind: type, value: Any) -> Any:
    if isinstance(kind, _StandIn):
        return kind.read(value)
    return _read_model(kind, value)


def _read_model(kind: Any, value: Any) -> Any:
    # As JSON, so that a strict model takes text for a date and a list for a set.
    try:
        return kind.model_validate_json(msgspec.json.encode(value))
    except Exception as error:
        # Not by its class: pydantic is never imported here.
        problem: dict[str, Any] = {"loc": (), "msg": repr(error)}
        if hasattr(error, "errors"):
            problem = error.errors()[0]
        path = ""
        for step in problem["loc"]:
            path = join(path, f"[{step}]" if isinstance(step, int) else step)
        raise InvalidArgument(path, _lower(problem["msg"])) from error


def _convert(value: Any, annotation: Any) -> Any:
    try:
        return msgspec.convert(value, annotation, str_keys=True, dec_hook=_read_custom)
    except Exception as error:
        raise _unfit(error) from error


def _constants(name: str, constants: Iterable[Any]) -> type:
    """Stand in for an enum or a Literal whose values msgspec does not read: find what is written like this."""
    try:
        written = {msgspec.json.encode(plain(constant)): constant for constant in constants}
    except Refused as refused:
        raise ConfigurationError(f"{name} has a value that {refused.problem}") from None

    def read(value: Any) -> Any:
        text = msgspec.json.encode(value)
        if text not in written:
            raise InvalidArgument("", f"{text.decode()} is no value of {name}")
        return written[text]

    return _stand_in(name, read)


def _union(options: tuple[Any, ...], known: _Known) -> Any:
    """Stand in for a union that msgspec does not tell apart: see which of the options fits.

    The plainest options, such as `str`, take what fits no other. An object must fit one option alone, since
    to pick one of two would be to guess; other values are the first option that they fit.
    """
    readable = [_readable(option, known) for option in options]
    if _trouble_with(union := Union[tuple(readable)]) is None:  # noqa: UP007 - there is no operator for a list
        return union
    name = " | ".join(_name(option) for option in options)
    if str in options and any(option in (bytes, bytearray, memoryview) for option in options):
        raise ConfigurationError(f"{name} cannot be read from JSON (either is written as text)")
    ranks = [option for option in readable if not _is_plain(option)], [o for o in readable if _is_plain(o)]

    def read(value: Any) -> Any:
        problems = []
        for rank in ranks:
            fits = []
            for option in rank:
                try:
                    fits.append(_convert(value, option))
                except InvalidArgument as problem:
                    problems.append(str(problem))
            if isinstance(value, dict) and any(fit != fits[0] for fit in fits):
                raise InvalidArgument("", f"fits more than one of {name}: give each a Literal field of its own")
            if fits:
                return fits[0]
        raise InvalidArgument("", f"is none of {name} ({'; '.join(problems)})")

    return _stand_in(name, read)


def _is_plain(option: Any) -> bool:
    return option in (str, float, Any, dict) or get_origin(option) in (dict, collections.abc.Mapping)


def _alias(alias: Any, known: _Known) -> type:
    """Stand in for a `type` statement that msgspec does not read, or that is about itself."""
    known[alias] = _stand_in(str(alias), lambda value: _convert(value, meant))
    meant = _readable(alias.__value__, known)
    return known[alias]


class _Shape(NamedTuple):
    """What a record is made of: its fields, whether each is required, and whether they go by position."""

    fields: dict[str, bool]
    by_position: bool = False


def _shape(kind: Any) -> _Shape | None:
    if typing.is_typeddict(kind):
        return _Shape({name: name in kind.__required_keys__ for name in kind.__annotations__})
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _Shape({name: name not in kind._field_defaults for name in kind._fields}, by_position=True)
    if dataclasses.is_dataclass(kind):
        return _Shape({each.name: not _has_default(each) for each in dataclasses.fields(kind) if each.init})
    return None


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _record(kind: type, shape: _Shape, known: _Known) -> type:
    """Stand in for a record with a field that msgspec does not read: read the fields, then call its class."""

    def read(value: Any) -> Any:
        if shape.by_position and isinstance(value, list):
            value = dict(zip(shape.fields, value, strict=False))
        return kind(**_convert(value, fields))

    known[kind] = _stand_in(_name(kind), read)
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except Exception as error:
        problem = f"{_name(kind)} has an annotation that cannot be resolved ({error})"
        raise ConfigurationError(problem) from error
    items: dict[str, Any] = {}
    for name, required in shape.fields.items():
        hint = hints.get(name, Any)
        # A TypedDict under `from __future__ import annotations` has these still in its annotations alone.
        while (qualifier := get_origin(hint)) in (Required, NotRequired):
            required, hint = qualifier is Required, get_args(hint)[0]
        try:
            readable = _readable(hint, known)
        except ConfigurationError as error:
            raise ConfigurationError(f"{_name(kind)}.{name}: {error}") from None
        items[name] = readable if required else NotRequired[readable]
    fields = typing.TypedDict(_name(kind), items)  # type: ignore[misc]
    return known[kind]
