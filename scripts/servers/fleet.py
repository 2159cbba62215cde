"""Several servers for one command: started side by side, named in its environment, told about afterwards."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from servers.catalogue import BEFORE, DEFAULTS, TITLES, engine
from servers.engine import Options
from servers.errors import Unavailable
from servers.server import Server


@dataclass(frozen=True)
class Berth:
    """A database that is wanted, and the variable that its URL goes into.

    A URL that is in the variable already is used: nothing is started for it.
    """

    kind: str
    version: str
    variable: str

    @property
    def title(self) -> str:
        return f"{TITLES[self.kind]} {self.version}"

    @property
    def given(self) -> str | None:
        return os.environ.get(self.variable) or None


@dataclass(frozen=True)
class Fleet:
    """What there is, and what there is not."""

    urls: Mapping[str, str]
    present: Sequence[str]
    absent: Mapping[str, str]

    def report(self) -> str:
        """Say which databases there were, in which version, and which there were not, and why."""
        lines = [f"tested: {', '.join((*self.present, f'SQLite {sqlite3.sqlite_version}'))}"]
        lines += [f"not tested: {title}: {reason.splitlines()[0]}" for title, reason in self.absent.items()]
        return "\n".join(lines)


def berths(targets: Sequence[str]) -> list[Berth]:
    """Read `postgres postgres@14`: the first of a kind gets the plain variable, others one with their major.

    >>> [berth.variable for berth in berths(["postgres", "postgres@14"])]
    ['DIBS_TEST_POSTGRES_URL', 'DIBS_TEST_POSTGRES_14_URL']
    """
    found: list[Berth] = []
    for target in targets:
        kind, _, version = target.partition("@")
        if kind not in DEFAULTS:
            raise ValueError(f"no such database: {kind} ({', '.join(DEFAULTS)})")
        if (behind := BEFORE.get(kind)) and behind not in {each.partition("@")[0] for each in targets}:
            raise ValueError(f"{kind} stands before a server: ask for {behind} too")
        version = version or DEFAULTS[kind]
        first = kind not in {berth.kind for berth in found}
        name = kind.upper() if first else f"{kind.upper()}_{version.partition('.')[0]}"
        found.append(Berth(kind, version, f"DIBS_TEST_{name}_URL"))
    return found


@contextmanager
def fleet(
    wanted: Sequence[Berth], *, durable: bool = False, options: Mapping[str, Options] | None = None
) -> Iterator[Fleet]:
    """Run servers for what is wanted and was not given."""
    to_start = [berth for berth in wanted if not berth.given]
    urls: dict[str, str] = {}
    titles: dict[Berth, str] = {}
    absent: dict[str, str] = {}

    def start(berth: Berth) -> Server:
        programs = engine(berth.kind, berth.version)
        more: Options = (options or {}).get(berth.kind) or {}
        if berth.kind in BEFORE:
            more = {"server": url_behind(berth), **more}
        server = Server(programs, durable=durable, options=more)
        try:
            server.start()
        except BaseException:
            server.close()
            raise
        return server

    def url_behind(berth: Berth) -> str:
        """Return the URL of the server that this one stands before, which was started, or given, before it."""
        behind = next(each for each in wanted if each.kind == BEFORE[berth.kind])
        return behind.given or starting[behind].result().url

    starting: dict[Berth, Future[Server]] = {}
    with ExitStack() as ending:
        for first in (True, False):
            now = [berth for berth in to_start if (berth.kind not in BEFORE) == first]
            with ThreadPoolExecutor(max_workers=max(len(now), 1)) as starters:
                starting |= {berth: starters.submit(start, berth) for berth in now}
            # Those that did start are ended, whatever became of the others; the last ones first.
            for berth in now:
                if starting[berth].exception() is None:
                    ending.callback(starting[berth].result().close)
        for berth in wanted:
            if berth.given:
                urls[berth.variable] = berth.given
                version = version_at(berth.given) or "of unknown version"
                titles[berth] = f"{TITLES[berth.kind]} {version} ({berth.variable})"
                continue
            try:
                server = starting[berth].result()
            except Unavailable as unavailable:
                absent[berth.title] = unavailable.reason
            else:
                urls[berth.variable] = server.url
                titles[berth] = str(server.engine)
        yield Fleet(urls, list(titles.values()), absent)


def version_at(url: str) -> str | None:
    """Return the version of a server that somebody else started, where it can be found out."""
    parts = urlsplit(url)
    if parts.scheme.startswith("postgres"):
        return _postgres_version(url)
    try:
        address = parts.hostname or "127.0.0.1", parts.port or 3306
        with socket.create_connection(address, timeout=5) as connection:
            greeting = connection.recv(256)
    except OSError:
        return None
    # Its greeting has its version, after the length (3 bytes), a number (1) and the protocol (1).
    # MariaDB puts 5.5.5- before it, for clients that look at the first digit.
    text = greeting[5:].partition(b"\0")[0].decode(errors="replace")
    return text.removeprefix("5.5.5-").partition("-")[0] or None


def _postgres_version(url: str) -> str | None:
    try:
        import psycopg
    except ImportError:
        return None
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            return connection.info.parameter_status("server_version")
    except psycopg.Error:
        return None
