"""What holds for every statement."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.params import Style, render

names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
inside = st.text(st.sampled_from("ab :%?$1\n-/*.,"), max_size=8)
verbatim = st.one_of(
    inside.map(lambda text: f"'{text}'"),
    inside.map(lambda text: f"'{text}''{text}'"),
    inside.map(lambda text: f'"{text}"'),
    inside.map(lambda text: f"`{text}`"),
    inside.map(lambda text: f"-- it's {text}".replace("\n", "") + "\n"),
    inside.map(lambda text: f"/* it's {text} ".replace("*/", "") + "*/"),
    inside.map(lambda text: f"$x${text}$x$"),
    st.sampled_from(["a::text", "5 % 3", "x := y", "a[1:2]", "?", "SELECT", "(1)"]),
)
pieces = st.lists(verbatim | names.map(lambda name: (name,)), max_size=8)


@settings(max_examples=300, deadline=None)
@given(pieces)
def test_spelling(pieces: list[str | tuple[str]]) -> None:
    """In every style each value is spelt, and nothing else is touched."""
    given_names = [piece[0] for piece in pieces if isinstance(piece, tuple)]
    order = list(dict.fromkeys(given_names))
    sql = " ".join(piece if isinstance(piece, str) else f":{piece[0]}" for piece in pieces)

    def spelt(spell: dict[str, str]) -> str:
        return " ".join(piece if isinstance(piece, str) else spell[piece[0]] for piece in pieces)

    assert render(sql, Style.NAMED) == (sql, ())
    assert render(sql, Style.QMARK) == (spelt(dict.fromkeys(order, "?")), tuple(given_names))
    assert render(sql, Style.DOLLAR) == (
        spelt({name: f"${number}" for number, name in enumerate(order, 1)}),
        tuple(order),
    )
    values = {name: f"<{name}>" for name in order}
    text, by_position = render(sql, Style.FORMAT)
    assert text % tuple(values[name] for name in by_position) == spelt(values)
    text, by_position = render(sql, Style.PYFORMAT)
    assert (text % values, by_position) == (spelt(values), ())
