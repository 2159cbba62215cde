"""Database URLs: what people write, taken apart, and never printed with the password."""

from __future__ import annotations

import pytest

from dibs import Dibs
from dibs.dialects.urls import DatabaseUrl, parse
from dibs.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "postgresql://me:secret@db.example:5433/shop?sslmode=require&application_name=a%20b",
            DatabaseUrl(
                "postgresql",
                "db.example",
                5433,
                "me",
                "secret",
                "shop",
                {"sslmode": "require", "application_name": "a b"},
                "db.example:5433",
            ),
        ),
        ("postgres://h/d", DatabaseUrl("postgresql", "h", None, "", "", "d", {}, "h")),
        ("postgresql+psycopg://h/d", DatabaseUrl("postgresql", "h", None, "", "", "d", {}, "h")),
        ("MySQL+pymysql://u@h/d", DatabaseUrl("mysql", "h", None, "u", "", "d", {}, "h")),
        ("mariadb://h:3307/d", DatabaseUrl("mariadb", "h", 3307, "", "", "d", {}, "h:3307")),
        ("postgresql:///d?host=/run", DatabaseUrl("postgresql", "", None, "", "", "d", {"host": "/run"}, "")),
        ("postgresql://[::1]:5/d", DatabaseUrl("postgresql", "::1", 5, "", "", "d", {}, "[::1]:5")),
        ("postgresql://a:1,b:2/d", DatabaseUrl("postgresql", "", None, "", "", "d", {}, "a:1,b:2")),
        ("sqlite:///dibs.db", DatabaseUrl("sqlite", database="dibs.db")),
        ("sqlite:////var/lib/dibs.db", DatabaseUrl("sqlite", database="/var/lib/dibs.db")),
        (
            "sqlite+pysqlite:///a%20b.db?synchronous=normal",
            DatabaseUrl("sqlite", database="a b.db", query={"synchronous": "normal"}),
        ),
        ("  sqlite:///x.db\n", DatabaseUrl("sqlite", database="x.db")),
        (
            "postgresql+asyncpg://h/d?ssl=require&prepared_statement_cache_size=0",
            DatabaseUrl("postgresql", "h", None, "", "", "d", {"sslmode": "require"}, "h"),
        ),
        (
            "mysql+aiomysql://h/d?charset=utf8mb4&autocommit=true",
            DatabaseUrl("mysql", "h", None, "", "", "d", {"charset": "utf8mb4"}, "h"),
        ),
        ("sqlite+aiosqlite:///x.db?check_same_thread=false", DatabaseUrl("sqlite", database="x.db")),
        (
            "sqlite:///x.db?check_same_thread=0",
            DatabaseUrl("sqlite", database="x.db", query={"check_same_thread": "0"}),
        ),
    ],
)
def test_parts(text: str, expected: DatabaseUrl) -> None:
    """Each part where it belongs, unescaped."""
    assert parse(text) == expected


@pytest.mark.parametrize("password", ["p@ss", "p:ss", "p/ss", "p#ss", "p?ss", "p%ss", "ü", "a b"])
def test_an_escaped_password(password: str) -> None:
    """Any character, escaped as in every URL."""
    from urllib.parse import quote

    url = parse(f"mysql://me:{quote(password, safe='')}@h/d")
    assert (url.user, url.password, url.host, url.database) == ("me", password, "h", "d")


SECRET = "hunter2secret"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{SECRET}@h/d",
        f"mysql://me:{SECRET}@h/d?ssl_mode=DISABLED",
        f"postgresql://h/d?user=me&password={SECRET}",
        f"postgresql://me:{SECRET}@a,b/d",
    ],
)
def test_no_password_is_printed(text: str) -> None:
    """Neither of the URL nor of the app."""
    assert SECRET not in str(parse(text))
    assert SECRET not in repr(parse(text))
    assert SECRET not in repr(Dibs(text))


@pytest.mark.parametrize(
    "text",
    [
        f"oracle://me:{SECRET}@h/d",
        f"postgresql://me:{SECRET}@h:port/d",
        f"postgresql://me:{SECRET}#x@h/d",
        f"postgresql://me:{SECRET}/x@h/d",
        f"postgresql://me:{SECRET}?x@h/d",
        f"me:{SECRET}@h/d",
        f"redis://:{SECRET}@h/0",
        f"//me:{SECRET}@h/d",
    ],
)
def test_a_wrong_url_is_refused_without_its_password(text: str) -> None:
    """It says what is wrong, and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert SECRET not in str(caught.value)
    assert SECRET not in str(caught.value.__cause__)


@pytest.mark.parametrize("text", ["", "dibs.db", "sqlite", "file:dibs.db", "/dev/null", "://"])
def test_what_is_no_url(text: str) -> None:
    """It names the schemes that there are, and an example."""
    with pytest.raises(
        ConfigurationError, match=r"mariadb://, mysql://, postgresql://, sqlite:// .*sqlite:///dibs\.db"
    ):
        parse(text)


@pytest.mark.parametrize("text", ["sqlite://dibs.db", "sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_what_is_no_file(text: str) -> None:
    """A queue needs a file that several connections can open."""
    with pytest.raises(ConfigurationError, match="slashes|a file that several connections"):
        parse(text)


def test_where_the_url_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the argument, else from DIBS_DATABASE_URL, else from DATABASE_URL; else it is an error that says how."""
    monkeypatch.delenv("DIBS_DATABASE_URL", raising=False)
    monkeypatch.setenv("DATABASE_URL", "sqlite:///third.db")
    assert str(Dibs().url) == "sqlite:///third.db"
    monkeypatch.setenv("DIBS_DATABASE_URL", "sqlite:///second.db")
    assert str(Dibs().url) == "sqlite:///second.db"
    assert str(Dibs("sqlite:///first.db").url) == "sqlite:///first.db"
    monkeypatch.delenv("DIBS_DATABASE_URL")
    monkeypatch.setenv("DATABASE_URL", "")
    with pytest.raises(ConfigurationError, match=r'Dibs\("sqlite:///dibs\.db"\).*DIBS_DATABASE_URL or DATABASE_URL'):
        Dibs()


@pytest.mark.parametrize(
    "text",
    [
        "mysql://me:pw@one:1,two,[::1]:3/shop",
        "postgresql+psycopg://me:pw@/shop?host=one:1&host=two&host=[::1]:3",
    ],
)
def test_several_hosts(text: str) -> None:
    """Servers that stand in for each other, as libpq has them written and as SQLAlchemy has."""
    url = parse(text)
    assert url.addresses == [("one", 1), ("two", None), ("::1", 3)]
    assert (url.hosts, url.host, url.port, url.query) == ("one:1,two,[::1]:3", "", None, {})
    assert not url.is_here


def test_a_port_that_is_no_number() -> None:
    """Said when the hosts are asked for: a URL for libpq is libpq's to read."""
    with pytest.raises(ConfigurationError, match=r"not a number: mysql://one:1,two:x/shop"):
        _ = parse("mysql://one:1,two:x/shop").addresses
