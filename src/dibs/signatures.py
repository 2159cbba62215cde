"""A task's signature: what its function takes, read once when the task is registered.

Arguments are stored by name, so that a person can read them, and so that a parameter may be added, moved or
given another default while jobs wait. Only what was passed is stored: a default is that of the code that runs
the job. What is stored was read back by the annotations first, so that the worker can read it too.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Container, Iterable
from inspect import Parameter
from typing import Any, Never, NoReturn

import msgspec

from dibs.codec import Codec, JsonCodec
from dibs.decoding import join
from dibs.errors import ConfigurationError, InvalidArgument
from dibs.limits import check_text
from dibs.secrets import RESULT, holds_secret

_read_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Signature:
    """How one function is called, with its arguments as JSON.

    `returns` is the annotation of what it returns, `Any` where there is none. A parameter without an
    annotation takes whatever JSON has. An annotation that cannot be resolved, or cannot be read from JSON,
    is an error at registration: to take it for `Any` would be to hand the function a str for a datetime.
    """

    def __init__(self, function: Callable[..., Any], codec: Codec) -> None:
        self.name: str = getattr(_underlying(function), "__qualname__", repr(function))
        self._codec = codec
        self._is_plain = type(codec) is JsonCodec
        self._annotations: dict[str, Any] = {}
        self._labels: dict[str, str] = {}
        self._required: set[str] = set()
        self._by_position: list[str] = []
        self._by_position_only: dict[str, Any] = {}
        self._others: list[Any] = []  # the annotation of **kwargs, if there are any
        self._secret: list[str] = []
        self._others_are_secret = False
        #: What a framework's function has to say of arguments, beyond their annotations: it takes them as the function
        #: does, and raises `InvalidArgument`. Asked where they are read, not where they are written.
        self._check_all: Callable[..., None] | None = getattr(function, "_dibs_check", None)
        try:
            declared = inspect.signature(function)
        except Exception as error:
            raise ConfigurationError(f"task {self.name}: its signature cannot be read ({error})") from error
        for parameter in declared.parameters.values():
            self._declare(parameter, self._resolve(function, parameter.name, parameter.annotation))
        self.returns: Any = self._resolve(function, "return", declared.return_annotation)
        self._result_is_secret = holds_secret(self.returns)

    # -- at registration ---------------------------------------------------------------------------

    def _declare(self, parameter: Parameter, annotation: Any) -> None:
        name, kind = parameter.name, parameter.kind
        if kind is Parameter.VAR_POSITIONAL:
            raise ConfigurationError(
                f"task {self.name}: *{name} leaves its arguments without names to store them by: take a list "
                "(and if it is a decorator's, let the decorator use functools.wraps)"
            )
        if kind is Parameter.VAR_KEYWORD:
            self._others = [annotation]
            self._others_are_secret = holds_secret(annotation)
            return
        if holds_secret(annotation):
            self._secret.append(name)
        self._annotations[name] = annotation
        self._labels[name] = f'"{name}":'
        if parameter.default is Parameter.empty:
            self._required.add(name)
        if kind is not Parameter.KEYWORD_ONLY:
            self._by_position.append(name)
        if kind is Parameter.POSITIONAL_ONLY:
            self._by_position_only[name] = parameter.default

    def _resolve(self, function: Callable[..., Any], name: str, written: Any) -> Any:
        """Return an annotation as the type it means, or raise `ConfigurationError` that names it."""
        if written is Parameter.empty:
            return Any
        where = f"task {self.name}: the annotation of {name}"
        source = _underlying(function)
        type_parameters = {each.__name__: each for each in getattr(source, "__type_params__", ())}

        def alone() -> None: ...

        alone.__annotations__ = {name: written}
        try:
            names = getattr(source, "__globals__", {})
            annotation = typing.get_type_hints(alone, names, type_parameters, include_extras=True)[name]
        except Exception as error:
            raise ConfigurationError(
                f"{where}, {written!r}, cannot be resolved ({error}): what it names must be defined in the "
                "module, not inside a function and not under TYPE_CHECKING"
            ) from error
        if annotation in (Never, NoReturn):
            return Any
        try:
            self._codec.load("null", annotation)
        except InvalidArgument:
            pass  # null need not fit: this was to see whether anything can
        except Exception as error:
            raise ConfigurationError(f"{where}: {error}") from error
        return annotation

    # -- what is secret ------------------------------------------------------------------------------

    @property
    def has_secrets(self) -> bool:
        return bool(self._secret) or self._others_are_secret or self._result_is_secret

    def is_secret(self, name: str) -> bool:
        """Must this argument be masked wherever its job is shown?"""
        return name in self._secret or (self._others_are_secret and name not in self._annotations)

    def secrets_in(self, kwargs: Iterable[str]) -> list[str]:
        """Return the names of what is secret in a call with these keywords: arguments, and RESULT for the result."""
        others = [name for name in kwargs if name not in self._secret and self.is_secret(name)]
        return [*self._secret, *others, *[RESULT] * self._result_is_secret]

    # -- for each job ------------------------------------------------------------------------------

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, or raise `InvalidArgument` where the call would raise TypeError."""
        if len(args) > len(self._by_position):
            takes = f"takes {len(self._by_position)} arguments by position"
            raise InvalidArgument("", f"task {self.name} {takes}, and {len(args)} were given")
        bound = dict(zip(self._by_position, args, strict=False))
        for name, value in kwargs.items():
            if name in bound:
                raise InvalidArgument(name, f"is given to task {self.name} twice")
            if name in self._by_position_only:
                raise InvalidArgument(name, f"is taken by task {self.name} by position only")
            if name not in self._annotations:
                self._check_other(name)
            bound[name] = value
        if not self._required <= bound.keys():
            raise self._missing(bound)
        return bound

    def dump(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the arguments as the text of a JSON object, or raise `InvalidArgument` with the name."""
        members = []
        for name, value in self.bind(args, kwargs).items():
            try:
                text = self._codec.dump(value, path=name)
            except InvalidArgument as error:
                if not self.is_secret(name):
                    raise
                raise InvalidArgument(error.path, "cannot be stored (it is secret, so no more is said)") from None
            if not (self._is_plain and self._annotations.get(name) is type(value) in (int, str, bool)):
                self._read(name, text)  # what these are written as is read as these
            members.append((self._labels.get(name) or f"{_quoted(name)}:") + text)
        return "{" + ",".join(members) + "}"

    def load(self, payload: str | bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what to call the function with, or raise `InvalidArgument` if the payload does not fit."""
        try:
            texts = _read_object(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidArgument("", f"the arguments of task {self.name} are no JSON object ({error})") from error
        if not self._required <= texts.keys():
            raise self._missing(texts)
        kwargs = {}
        for name, text in texts.items():
            if name not in self._annotations:
                self._check_other(name)
            kwargs[name] = self._read(name, bytes(text))
        args = tuple(kwargs.pop(name, default) for name, default in self._by_position_only.items())
        if self._check_all is not None:
            self._check_all(*args, **kwargs)
        return args, kwargs

    def _read(self, name: str, text: str | bytes) -> Any:
        annotation = self._annotations[name] if name in self._annotations else self._others[0]
        try:
            return self._codec.load(text, annotation)
        except InvalidArgument as error:
            if self.is_secret(name):
                raise InvalidArgument(name, "does not fit its annotation (it is secret, so no more is said)") from None
            raise InvalidArgument(join(name, error.path), error.problem) from error

    def _check_other(self, name: str) -> None:
        if not self._others:
            takes = ", ".join(self._annotations) or "none"
            raise InvalidArgument(name, f"task {self.name} has no such argument: it takes {takes}")
        check_text(name, ascii(name))

    def _missing(self, given: Container[str]) -> InvalidArgument:
        name = next(name for name in self._annotations if name in self._required and name not in given)
        return InvalidArgument(name, f"is missing, and task {self.name} cannot be called without it")


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


def _underlying(function: Any) -> Any:
    """Return the function in whose module the annotations were written."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    if inspect.ismethod(function):
        return function.__func__
    if not hasattr(function, "__globals__") and not isinstance(function, type):
        return type(function).__call__
    return function
