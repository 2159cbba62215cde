"""How a statement is spelt for each kind of driver."""

from __future__ import annotations

import pytest

from dibs.params import Rendered, Style, render


@pytest.mark.parametrize(
    ("style", "text", "names"),
    [
        (Style.NAMED, "SELECT :b, :a, :b", ()),
        (Style.PYFORMAT, "SELECT %(b)s, %(a)s, %(b)s", ()),
        (Style.FORMAT, "SELECT %s, %s, %s", ("b", "a", "b")),
        (Style.QMARK, "SELECT ?, ?, ?", ("b", "a", "b")),
        (Style.DOLLAR, "SELECT $1, $2, $1", ("b", "a")),
    ],
)
def test_styles(style: Style, text: str, names: tuple[str, ...]) -> None:
    """Each driver is given its own spelling, and the names in the order in which it wants the values."""
    assert render("SELECT :b, :a, :b", style) == Rendered(text, names)


@pytest.mark.parametrize(
    "skipped",
    [
        "':x'",
        "'it''s :x'",
        "'a\n:x'",
        "''",
        '":x"',
        '"a"":x"',
        "`:x`",
        "x::text",
        "-- it's :x\n",
        "/* it's :x */",
        "/* a\n:x */",
        "$$ it's :x $$",
        "$body$ $$ :x $$ $body$",
        "x := 5",
        "x[1:2]",
        "?",
    ],
)
@pytest.mark.parametrize("style", Style)
def test_not_a_value(skipped: str, style: Style) -> None:
    """What looks like a value inside text, a name or a comment is left alone, and what follows is not."""
    rendered = render(f"SELECT {skipped}, :a, '{skipped[:0]}b'", style)
    assert skipped in rendered.text
    assert rendered.text.replace(skipped, "").count(":a") == (style is Style.NAMED)
    assert rendered.names in ((), ("a",))


@pytest.mark.parametrize("style", [Style.PYFORMAT, Style.FORMAT])
@pytest.mark.parametrize("where", ["a % b", "'5%'", '"5%"', "-- 5%\n", "/* %s */"])
def test_percent(style: Style, where: str) -> None:
    """A percent sign reaches the server as it was written, wherever it stands."""
    assert render(where, style).text % () == where
    for other in set(Style) - {Style.PYFORMAT, Style.FORMAT}:
        assert render(where, other).text == where


def test_names() -> None:
    """A name may have digits and capitals, and ends where a name ends."""
    assert render("SELECT :a1b, :_c,:D_e)", Style.FORMAT) == ("SELECT %s, %s,%s)", ("a1b", "_c", "D_e"))


def test_same_text_each_time() -> None:
    """A statement is rendered once, so that what a server has prepared is found again."""
    sql = "SELECT :once"
    assert render(sql, Style.DOLLAR) is render(sql, Style.DOLLAR)
