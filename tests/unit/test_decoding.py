"""Which annotations the codec can read, and what it says of text that does not fit one."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest

from dibs.codec import JsonCodec
from dibs.errors import ConfigurationError, InvalidArgument
from samples import (
    ID,
    Box,
    Cat,
    Color,
    Crate,
    Dog,
    Mixed,
    Model,
    Order,
    Place,
)

codec = JsonCodec()


@pytest.mark.parametrize(
    ("text", "annotation", "path", "problem"),
    [
        ('"a"', int, "", "expected `int`, got `str`"),
        ("true", int, "", "expected `int`, got `bool`"),
        ("1.5", int, "", "expected `int`, got `float`"),
        ("null", str, "", "expected `str`, got `null`"),
        ('{"lines":[{"price":1},{"price":"x"}]}', Order, "lines[1].price", "expected `float`"),
        ('{"lines":[{}]}', Order, "lines[0]", "missing required field `price`"),
        ('{"a":"x"}', dict[str, int], "[...]", "expected `int`"),
        ('{"a":1}', dict[int, int], "", "a key does not fit"),
        ("[1", list[int], "", "truncated"),
        ("", Any, "", "truncated"),
        ('"\\ud800"', str, "", ""),
        ("\ud800", str, "", "surrogates"),
        (b"\xff", str, "", ""),
        ("[" * 100_000, Any, "", "nested too deep"),
        ("1" * 5000, int, "", "out of range"),
        ('"2026-07-01"', datetime, "", "RFC3339"),
        ('"green"', Color, "", "green"),
        ("3", Mixed, "", "3 is no value of Mixed"),
        ('"blue"', Literal[Color.RED], "", '"blue" is no value of typing.Literal'),
        ("[[3]]", list[list[Mixed]], "[0][0]", "3 is no value of Mixed"),
        ('[{"price":1,"lines":[{}]}]', list[Model], "[0].lines[0].price", "Field required"),
        ("[1]", Model, "", "input should be an object"),
        (
            '{"a":["2026-01-01",1]}',
            dict[str, list[UUID | date]],
            "[...][1]",
            "is none of UUID | date (expected `uuid`",
        ),
        (
            '[{"kind":"cat","name":1}]',
            list[Cat | Dog],
            "[0]",
            "is none of Cat | Dog (name: expected `str`, got `int`; kind: invalid enum",
        ),
        (
            '[{"kind":"cat","name":"a","kittens":[{"kind":"dog"}]}]',
            list[Cat],
            "[0].kittens[0]",
            "missing required field `name`",
        ),
        ('{"width":1}', Box | Crate, "", "more than one of Box | Crate: give each a Literal"),
        ('["here"]', Place, "when", "is none of date | datetime"),
    ],
    ids=str,
)
def test_does_not_fit(text: str | bytes, annotation: Any, path: str, problem: str) -> None:
    """Text that does not fit the annotation is refused, with the path as far as it is known."""
    with pytest.raises(InvalidArgument) as refusal:
        codec.load(text, annotation)
    assert problem.lower() in refusal.value.problem.lower()
    assert refusal.value.path == path


@dataclass
class Unreadable:
    where: Path


@dataclass
class Unresolved:
    what: Nowhere  # type: ignore[name-defined]  # noqa: F821


class Endless(Enum):
    A = float("nan")


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (Path, "Path cannot be read from JSON"),
        (list[Path], "Path"),
        (Unreadable, "Unreadable.where: Path cannot be read"),
        (dict[str, Unreadable | int], "Unreadable.where"),
        (Unresolved, "Unresolved has an annotation that cannot be resolved"),
        (Callable[[int], int], "Callable"),
        (Iterator[int], "Iterator"),
        (deque[int], "deque"),
        (complex, "complex"),
        (bytes | str, "either is written as text"),
        (Endless, "Endless has a value that is nan"),
        (Enum, "Enum"),
        ("int", "int"),
        (5, "5"),
    ],
    ids=str,
)
def test_unreadable_annotation(annotation: Any, problem: str) -> None:
    """An annotation that no text could fit is a mistake in the program, and says which part of it."""
    with pytest.raises(ConfigurationError, match=problem):
        codec.load("null", annotation)


def test_annotations_made_on_the_way() -> None:
    """Annotations that are made anew for each call neither pile up nor get mixed up."""
    here = JsonCodec()
    for number in range(5000):
        assert here.load(str(number), Literal[number]) == number
    assert len(here._readers) <= 4096
    assert here.load("1", Annotated[int, {"not": "hashable"}]) == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement is new in Python 3.12")
def test_type_statement() -> None:
    """A named type may be about itself, and may be one that msgspec does not read."""
    scope: dict[str, Any] = {"UUID": UUID}
    exec("type Tree = dict[str, Tree] | list[Tree] | UUID | str", scope)
    assert codec.load(f'{{"a":["{ID}","x"]}}', scope["Tree"]) == {"a": [ID, "x"]}


def test_order_of_a_union_counts() -> None:
    """Of two lists that a value fits, it comes back as the first, though `A | B == B | A`."""
    assert codec.load("[1]", list[int] | set[int]) == [1]
    assert codec.load("[1]", set[int] | list[int]) == {1}


def test_pydantic_is_not_imported() -> None:
    """Who does not use pydantic does not load it."""
    code = "import sys, dibs.codec, dibs.signatures; dibs.codec.JsonCodec().dump(object) if 0 else None"
    found = subprocess.run([sys.executable, "-c", code + "; print('pydantic' in sys.modules)"], capture_output=True)
    assert found.stdout.strip() == b"False", found.stderr
