"""Database URLs: what people write, taken apart once, and printed without the password."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from dibs.errors import ConfigurationError
from dibs.limits import problem_with_text

#: What each scheme means. The part after a `+` (a driver of SQLAlchemy's) says how to read the parameters.
SCHEMES = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mariadb",
    "sqlite": "sqlite",
}
EXAMPLE = "sqlite:///dibs.db"

#: What SQLAlchemy's drivers take in a URL that is about the driver itself, not about the database: without a meaning for
#: connections of dibs' own, which commit as they must and have no pooler's names to keep out of the way of.
_OF_THE_DRIVER = {
    "asyncpg": {
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "statement_cache_size",
        "max_cached_statement_lifetime",
        "max_cacheable_statement_size",
    },
    "psycopg": {"prepare_threshold"},
    "psycopg2": {"executemany_mode"},
    "pymysql": {"autocommit", "use_unicode"},
    "mysqldb": {"autocommit", "use_unicode"},
    "aiomysql": {"autocommit", "use_unicode", "echo"},
    "asyncmy": {"autocommit", "use_unicode", "echo"},
    "pysqlite": {"check_same_thread", "cached_statements", "detect_types", "isolation_level", "timeout"},
    "aiosqlite": {"check_same_thread", "cached_statements", "detect_types", "isolation_level", "timeout"},
}
#: The same thing under another name. asyncpg calls `ssl` what everybody else calls `sslmode`.
_RENAMED = {"asyncpg": {"ssl": "sslmode"}}


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A database's address. `str()` of it is safe to print: it has no password."""

    scheme: str
    host: str = ""
    port: int | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    database: str = ""
    query: dict[str, str] = field(default_factory=dict, repr=False)
    hosts: str = field(default="", repr=False)  # the part between @ and /, as written: it may name several

    def __str__(self) -> str:
        user = f"{quote(self.user)}@" if self.user else ""
        return f"{self.scheme}://{user}{self.hosts}/{quote(self.database, safe='/: ')}"

    @property
    def addresses(self) -> list[tuple[str, int | None]]:
        """The hosts and ports, where it names several as well; raise ConfigurationError where a port is no number."""
        try:
            parts = [urlsplit(f"//{each}") for each in self.hosts.split(",")]
            return [(unquote(part.hostname or ""), part.port) for part in parts]
        except ValueError:
            raise ConfigurationError(f"a port in the database URL is not a number: {self}") from None

    @property
    def file(self) -> Path | None:
        """The file that the database is, where it is one."""
        return Path(self.database) if self.scheme == "sqlite" else None

    @property
    def is_here(self) -> bool:
        """Does it look as if the server were on this machine? A tunnel from here to elsewhere does, too."""
        host = self.host or self.query.get("host", "")
        if "," in self.hosts:
            return False
        return host in ("", "localhost", "::1") or host.startswith(("127.", "/"))


def parse(text: str) -> DatabaseUrl:
    """Take a database URL apart; raise ConfigurationError that says what is wrong with it.

    >>> str(parse("postgres://me:secret@db.example:5433/shop?sslmode=require"))
    'postgresql://me@db.example:5433/shop'
    >>> parse("sqlite:///dibs.db").database
    'dibs.db'
    """
    written, separator, rest = text.strip().partition("://")
    scheme = SCHEMES.get(written.partition("+")[0].lower())
    if not separator or scheme is None:
        known = ", ".join(f"{name}://" for name in sorted(set(SCHEMES.values())))
        shown = f"{written}://…" if separator else "it has no ://"
        raise ConfigurationError(
            f"not a database URL that dibs knows ({shown}): write one of {known} such as {EXAMPLE}"
        )
    driver = written.partition("+")[2].lower()
    if problem := problem_with_text(unquote(rest)):
        raise ConfigurationError(f"the {scheme}:// URL {problem}")
    if scheme == "sqlite":
        return _file(rest, driver)
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError:  # its text may have the password in it
        raise ConfigurationError(
            f"the {scheme}:// URL can't be read: in its user and password write [ as %5B, ] as %5D, and what is no ASCII "
            "escaped; in its host only an IPv6 address has brackets"
        ) from None
    if parts.fragment or ("@" in parts.path + parts.query and "@" not in parts.netloc):
        # Nothing of it is printed: what follows may be the rest of a password.
        raise ConfigurationError(
            f"the {scheme}:// URL has a #, / or ? where its user and password stand: write them as %23, %2F or %3F"
        )
    user_part, _, hosts = parts.netloc.rpartition("@")
    query = _query(parts.query, driver)
    # As SQLAlchemy has several hosts written: ?host=one:5432&host=two:5432
    each = [value for name, value in parse_qsl(parts.query) if name == "host"]
    if len(each) > 1 and not hosts:
        hosts = ",".join(each)
        del query["host"]
    user, _, password = user_part.partition(":")
    try:
        port = parts.port if "," not in hosts else None
    except ValueError:
        # Without an @ it is a password that somebody took for the end of the user.
        where = f"{scheme}://…@{hosts}" if user_part else f"{scheme}://…"
        raise ConfigurationError(f"the port in the database URL is not a number: {where}") from None
    return DatabaseUrl(
        scheme=scheme,
        host=(parts.hostname or "") if "," not in hosts else "",
        port=port,
        user=unquote(user),
        password=unquote(password),
        database=unquote(parts.path.removeprefix("/")),
        query=query,
        hosts=hosts,
    )


def _query(text: str, driver: str) -> dict[str, str]:
    """Return the parameters that are about the database, by the names that its own clients know."""
    renamed, left_out = _RENAMED.get(driver, {}), _OF_THE_DRIVER.get(driver, set())
    given = parse_qsl(text, keep_blank_values=True)
    return {renamed.get(name, name): value for name, value in given if name not in left_out}


def _file(rest: str, driver: str) -> DatabaseUrl:
    path, _, query = rest.partition("?")
    if not path.startswith("/"):
        raise ConfigurationError(
            f"a file's URL has three slashes before a relative path ({EXAMPLE}) and four before an absolute one"
        )
    path = unquote(path.removeprefix("/"))
    if path in ("", ":memory:"):
        raise ConfigurationError(
            f"a queue needs a file that several connections can open, such as {EXAMPLE}: a database in memory has one"
        )
    return DatabaseUrl(scheme="sqlite", database=path, query=_query(query, driver))
