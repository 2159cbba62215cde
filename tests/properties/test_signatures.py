"""What holds for every signature and every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.codec import JsonCodec
from dibs.errors import InvalidArgument
from dibs.signatures import Signature

codec = JsonCodec()
NAMES = ["a", "b", "c", "d"]


@st.composite
def functions(draw: st.DrawFn) -> Callable[..., Any]:
    """Return a function that returns its arguments by name, with parameters of any kind but *args."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    position_only = draw(st.integers(0, len(names)))
    keyword_only = draw(st.integers(position_only, len(names)))
    first_default = draw(st.integers(0, len(names)))
    written = [f"{name}: int" + (f" = {index}" if index >= first_default else "") for index, name in enumerate(names)]
    if position_only:
        written.insert(position_only, "/")
    if keyword_only < len(names):
        written.insert(keyword_only + bool(position_only), "*")
    if draw(st.booleans()):
        written.append("**others: int")
    scope: dict[str, Any] = {}
    exec(f"def function({', '.join(written)}): return locals()", scope)
    function: Callable[..., Any] = scope["function"]
    return function


@settings(max_examples=300, deadline=None)
@given(
    functions(),
    st.lists(st.integers(), max_size=4).map(tuple),
    st.dictionaries(st.sampled_from([*NAMES, "e f", "é"]), st.integers(), max_size=3),
)
def test_calls(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A call is stored if it could be made, and the worker makes the same one."""
    signature = Signature(function, codec)
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(InvalidArgument):
            signature.dump(args, kwargs)
        return
    position_only = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_ONLY]
    if kwargs.keys() & set(position_only):
        # Python tells `f(1, a=2)` of `def f(a, /, **others)` apart; arguments by name cannot.
        with pytest.raises(InvalidArgument, match=r"twice|by position only"):
            signature.dump(args, kwargs)
        return
    again_args, again_kwargs = signature.load(signature.dump(args, kwargs))
    assert function(*again_args, **again_kwargs) == function(*args, **kwargs)
