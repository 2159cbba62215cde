"""How a task's arguments are bound, checked and stored, and what the function is called with."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pydantic
import pytest

from dibs.codec import JsonCodec
from dibs.errors import ConfigurationError, InvalidArgument
from dibs.signatures import Signature

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypes

Item = TypeVar("Item")
codec = JsonCodec()
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@dataclass
class Line:
    price: Decimal


@dataclass
class Order:
    lines: list[Line]


class Customer(pydantic.BaseModel):
    name: str


def send(order_id: int, when: datetime | None = None, *, to: list[str] = []) -> str: ...  # type: ignore[empty-body]
def bill(order: Order, customer: Customer) -> Order: ...  # type: ignore[empty-body]
def free(anything, other=1): ...  # type: ignore[no-untyped-def]
def by_position(a: int, b: date = date(2026, 1, 1), c: int = 3, /, d: int = 4) -> None: ...
def open_ended(a: int, **others: date) -> None: ...
async def later(a: int) -> date: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "payload"),
    [
        (send, (7412,), {}, {"order_id": 7412}),
        (send, (), {"order_id": 7412}, {"order_id": 7412}),
        (
            send,
            (1, NOON),
            {"to": ["Zoë"]},
            {"order_id": 1, "when": "2026-07-01T12:00:00+00:00", "to": ["Zoë"]},
        ),
        (send, (1, None), {}, {"order_id": 1, "when": None}),
        (
            bill,
            (Order([Line(Decimal("1.50"))]), Customer(name="Zoë")),
            {},
            {"order": {"lines": [{"price": "1.50"}]}, "customer": {"name": "Zoë"}},
        ),
        (free, ([1, {"a": None}],), {"other": "x"}, {"anything": [1, {"a": None}], "other": "x"}),
        (by_position, (1, date(2026, 2, 2)), {"d": 5}, {"a": 1, "b": "2026-02-02", "d": 5}),
        (open_ended, (1,), {'a "b"': date(2026, 2, 2)}, {"a": 1, 'a "b"': "2026-02-02"}),
        (later, (1,), {}, {"a": 1}),
        (lambda: None, (), {}, {}),
    ],
)
def test_round_trip(function: Callable[..., Any], args: Any, kwargs: Any, payload: object) -> None:
    """Arguments are stored by name, only those that were passed, and the function is called with the same."""
    signature = Signature(function, codec)
    text = signature.dump(args, kwargs)
    assert json.loads(text) == payload
    assert signature.bind(*signature.load(text)) == signature.bind(args, kwargs) | (
        {"c": 3} if function is by_position else {}
    )
    assert signature.load(text.encode()) == signature.load(text)


def test_readable() -> None:
    """A payload is what a person would write."""
    assert Signature(send, codec).dump((7412,), {"to": ["Zoë"]}) == '{"order_id":7412,"to":["Zoë"]}'


def test_changed_default() -> None:
    """A job that was enqueued without an argument runs with the default of the code that runs it."""

    def old(a: int, b: int = 1) -> int:
        return b

    def new(a: int, b: int = 2) -> int:
        return b

    args, kwargs = Signature(new, codec).load(Signature(old, codec).dump((1,), {}))
    assert new(*args, **kwargs) == 2


def test_positional_only() -> None:
    """What can only be passed by position is, also if an earlier one is left to its default."""

    def function(a: int = 1, b: int = 2, /, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    args, kwargs = Signature(function, codec).load('{"b":5,"c":6}')
    assert function(*args, **kwargs) == (1, 5, 6)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "path", "problem"),
    [
        (send, (), {}, "order_id", "is missing, and task send cannot"),
        (send, (1, None, []), {}, "", "task send takes 2 arguments by position, and 3 were given"),
        (
            send,
            (1,),
            {"oder_id": 2},
            "oder_id",
            "task send has no such argument: it takes order_id, when, to",
        ),
        (send, (1,), {"order_id": 2}, "order_id", "is given to task send twice"),
        (by_position, (), {"a": 1}, "a", "is taken by task by_position by position only"),
        (open_ended, (1,), {"a\0": NOON.date()}, "'a\\x00'", "NUL"),
        (open_ended, (1,), {"\ud800": NOON.date()}, "'\\ud800'", "surrogate"),
        (send, ("7412",), {}, "order_id", "expected `int`, got `str`"),
        (send, (True,), {}, "order_id", "expected `int`, got `bool`"),
        (send, (None,), {}, "order_id", "expected `int`, got `null`"),
        (send, (1,), {"to": "me"}, "to", "expected `array`, got `str`"),
        (send, (1,), {"to": ["me", 3]}, "to[1]", "expected `str`, got `int`"),
        (send, (1, datetime(2026, 1, 1)), {}, "when", "time zone"),
        (send, (1,), {"to": ["a", "\0"]}, "to[1]", "NUL"),
        (bill, (Order([Line(Decimal("NaN"))]), None), {}, "order.lines[0].price", "NaN"),
        (bill, ({"lines": [{"price": "x"}]}, None), {}, "order.lines[0].price", "invalid decimal"),
        (bill, (Order([]), {"name": 3}), {}, "customer.name", "valid string"),
        (free, (object(),), {}, "anything", "type object"),
        (open_ended, (1,), {"b": "x"}, "b", "invalid RFC3339"),
    ],
)
def test_refused(function: Callable[..., Any], args: Any, kwargs: Any, path: str, problem: str) -> None:
    """A call that would fail at the worker fails at the enqueue, and says which argument of which task."""
    with pytest.raises(InvalidArgument) as refusal:
        Signature(function, codec).dump(args, kwargs)
    assert problem.lower() in refusal.value.problem.lower()
    assert refusal.value.path == path


@pytest.mark.parametrize(
    ("payload", "path", "problem"),
    [
        ("{}", "order_id", "is missing, and task send cannot"),
        ('{"order_id":1,"gone":2}', "gone", "task send has no such argument"),
        ('{"order_id":"1"}', "order_id", "expected `int`"),
        ('{"order_id":1,"to":[1]}', "to[0]", "expected `str`"),
        ("[1]", "", "the arguments of task send are no JSON object"),
        ("{", "", "are no JSON object"),
        ("\ud800", "", "are no JSON object"),
        ('{"order_id":' + "[" * 100_000, "", "are no JSON object"),
    ],
    ids=range(8),
)
def test_payload_does_not_fit(payload: str, path: str, problem: str) -> None:
    """A payload that does not fit the code that is to run it is refused, naming the parameter."""
    with pytest.raises(InvalidArgument, match=problem) as refusal:
        Signature(send, codec).load(payload)
    assert refusal.value.path == path


def has_list(*args: int) -> None: ...
def unresolvable(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def only_for_types(a: list[OnlyForTypes]) -> None: ...
def unreadable(a: dict[str, Callable[[], int]]) -> None: ...
def returns_unreadable() -> Iterator[int]: ...  # type: ignore[empty-body]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (has_list, r"task has_list: \*args leaves .* take a list"),
        (decorated(send), "functools.wraps"),
        (unresolvable, "task unresolvable: the annotation of a, 'Nowhere', cannot be resolved"),
        (only_for_types, "OnlyForTypes.* not under TYPE_CHECKING"),
        (unreadable, "task unreadable: the annotation of a: .*Callable"),
        (returns_unreadable, "the annotation of return: .*Iterator"),
        (3, "its signature cannot be read"),
        (dict.update, "signature cannot be read|leaves"),
    ],
)
def test_no_task(function: Any, problem: str) -> None:
    """A function that cannot be a task is refused when it is registered, not when its first job runs."""
    with pytest.raises(ConfigurationError, match=problem):
        Signature(function, codec)


def test_local_class() -> None:
    """A class of the function around it cannot be resolved from text, and is said to be the reason."""

    @dataclass
    class Local:
        a: int

    def task(a: Local) -> None: ...

    with pytest.raises(ConfigurationError, match=r"the annotation of a, 'Local', .* not inside a function"):
        Signature(task, codec)
    task.__annotations__["a"] = Local
    assert Signature(task, codec).load('{"a":{"a":1}}') == ((), {"a": Local(1)})


class Mailer:
    def __call__(self, to: Line) -> None: ...
    def method(self, to: Line) -> None: ...
    @classmethod
    def of_class(cls, to: Line) -> None: ...
    @staticmethod
    def static(to: Line) -> None: ...


@functools.wraps(send)
def wrapping(*args: Any, **kwargs: Any) -> Any:
    return send(*args, **kwargs)


def stopping(a: Line, b: int = 1) -> NoReturn:
    raise SystemExit


@pytest.mark.parametrize(
    "function",
    [
        Mailer(),
        Mailer().method,
        Mailer.of_class,
        Mailer.static,
        functools.partial(functools.partial(Mailer.static)),
    ],
)
def test_callables(function: Callable[..., Any]) -> None:
    """Methods, partials and callable objects have signatures like functions."""
    assert Signature(function, codec).load('{"to":{"price":"1.5"}}') == ((), {"to": Line(Decimal("1.5"))})


def test_wrapped() -> None:
    """What functools.wraps has wrapped is taken for what it wraps."""
    assert Signature(wrapping, codec).dump((1,), {}) == '{"order_id":1}'
    assert Signature(wrapping, codec).name == "send"


def test_partial() -> None:
    """What a partial has filled in is a default."""
    assert Signature(functools.partial(send, to=["me"]), codec).dump((1,), {}) == '{"order_id":1}'


def test_returns() -> None:
    """The return annotation tells how results are read; without one, or if it never returns, as they are."""
    assert Signature(bill, codec).returns is Order
    assert Signature(later, codec).returns is date
    assert Signature(by_position, codec).returns is type(None)
    assert Signature(free, codec).returns is Any
    assert Signature(stopping, codec).returns is Any


def test_generic() -> None:
    """A type variable takes anything."""

    def task(a: list[Item]) -> Item: ...  # type: ignore[empty-body]

    assert Signature(task, codec).load('{"a":["x",1]}') == ((), {"a": ["x", 1]})


class Upper:
    """A codec of the user's, which writes only upper case."""

    def dump(self, value: object, *, path: str = "") -> str:
        return json.dumps(str(value).upper())

    def load(self, text: str | bytes, annotation: Any) -> Any:
        if annotation is date:
            raise TypeError("no dates")
        return (annotation, json.loads(text))


def test_own_codec() -> None:
    """Another codec is asked for each argument and for each annotation."""

    def task(a: int, b: str = "") -> None: ...

    signature = Signature(task, Upper())
    assert signature.dump(("x",), {"b": "y"}) == '{"a":"X","b":"Y"}'
    assert signature.load('{"a":"X"}') == ((), {"a": (int, "X")})
    with pytest.raises(ConfigurationError, match="the annotation of return: no dates"):
        Signature(later, Upper())
