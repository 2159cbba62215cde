"""Where it is measured: throwaway servers with each commit on the disk, and a fresh database for each run."""

from __future__ import annotations

import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from servers import running
from servers.debian import prefix
from servers.leash import Leash
from servers.places import throwaway_base
from servers.ports import free_port

from dibs import Dibs
from dibs.bindings.binding import OwnConnection
from dibs.ops import Execute, Fetch
from peers.install import Installation, installed
from peers.peer import Peer
from peers.process import Failed, Process

#: What PostgreSQL has to load for its statements to be counted, for the measure of idle cost.
COUNTING = {"shared_preload_libraries": "pg_stat_statements"}
#: How often (seconds) it is looked whether all is settled, once the last job was called.
GLANCE = 0.002

REDIS = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")


@dataclass
class Database:
    """A fresh database for one contestant's run."""

    peer: Peer
    url: str
    installation: Installation
    _left: Callable[[], int]
    _kept: Callable[[], int | None]

    def process(self, **asked: object) -> Process:
        """Start the contestant's program."""
        told = {"url": self.url, "settings": self.peer.settings, **asked}
        return Process(self.peer.name, self.installation, told)

    def left(self) -> int:
        """How many jobs are not settled yet?"""
        return self._left()

    def kept(self) -> int | None:
        """How many finished jobs have a row? None: it keeps none."""
        return self._kept()

    def settled(self, *, within: float = 60.0) -> float:
        """Wait until no job is left; return when that was."""
        end = time.monotonic() + within
        while left := self.left():
            if time.monotonic() > end:
                raise Failed(f"{self.peer.name}: all jobs were called, and {left} are not settled")
            time.sleep(GLANCE)
        return time.perf_counter()


class Grounds:
    """The servers of a run. All of them end with it, also when it is killed."""

    def __init__(self, given: Mapping[str, str], *, counting: bool = False) -> None:
        """`given` has URLs of servers by kind, to be used instead of throwaway ones."""
        self._given = given
        self._counting = counting
        self._servers: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._templates: dict[str, str] = {}
        self._tag = secrets.token_hex(3)  # a second run may use the same server
        self._numbers = count(1)
        self._stack = ExitStack()

    def __enter__(self) -> Grounds:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._templates.values():
            self.administer("postgres", f"DROP DATABASE {name}")
        self._stack.close()

    def version(self, peer: Peer) -> str:
        """Return what a contestant's jobs are in, and its version where it is known."""
        if peer.kind == "sqlite":
            return f"SQLite, synchronous={peer.settings.get('synchronous', 'full')}"
        return self._versions.get(peer.kind, peer.kind)

    def server(self, kind: str) -> str:
        """Return the URL of the server of this kind, started unless it was before."""
        if kind not in self._servers:
            if kind in self._given:
                self._servers[kind] = self._given[kind]
            elif kind == "redis":
                self._servers[kind] = self._stack.enter_context(_redis())
                self._versions[kind] = "Redis, appendfsync=everysec"
            else:
                options = COUNTING if self._counting and kind == "postgres" else None
                server = self._stack.enter_context(running(kind, durable=True, options=options))
                self._servers[kind] = server.url
                self._versions[kind] = str(server.engine)
        return self._servers[kind]

    def administer(self, kind: str, sql: str) -> list[tuple[object, ...]]:
        """Run a statement on the server itself; return its rows if it is a query."""
        connection = Dibs(self.server(kind)).store.open()
        try:
            if sql.startswith("SELECT"):
                rows: list[tuple[object, ...]] = connection.answer(Fetch(sql, {}))
                return rows
            connection.answer(Execute(sql, {}))
            return []
        finally:
            connection.close()

    @contextmanager
    def database(self, peer: Peer) -> Iterator[Database]:
        """Yield a fresh database with the contestant's tables in it, and drop it after."""
        installation = installed(peer)
        if peer.kind == "redis":
            yield self._in_redis(peer, installation)
        elif peer.kind == "sqlite":
            with _folder() as folder:
                yield from self._database(peer, _sqlite_url(peer, folder), installation, prepare=True)
        elif peer.kind == "postgres":
            name = f"dibs_peers_{self._tag}_{next(self._numbers)}"
            self.administer("postgres", f"CREATE DATABASE {name} TEMPLATE {self._template(peer, installation)}")
            try:
                yield from self._database(peer, self._url("postgres", name), installation, prepare=False)
            finally:
                self.administer("postgres", f"DROP DATABASE {name} WITH (FORCE)")
        else:
            name = f"dibs_peers_{self._tag}_{next(self._numbers)}"
            self.administer(peer.kind, f"CREATE DATABASE {name}")
            try:
                yield from self._database(peer, self._url(peer.kind, name), installation, prepare=True)
            finally:
                self.administer(peer.kind, f"DROP DATABASE {name}")

    def _template(self, peer: Peer, installation: Installation) -> str:
        """Return the name of a database with nothing but the contestant's tables; copying it takes a moment only."""
        key = "dibs" if peer.module == "raw" else peer.module
        if key not in self._templates:
            name = f"dibs_peers_{self._tag}_template_{next(self._numbers)}"
            self.administer("postgres", f"CREATE DATABASE {name}")
            self._templates[key] = name
            _prepare(peer, self._url("postgres", name), installation)
        return self._templates[key]

    def _url(self, kind: str, database: str) -> str:
        return urlunsplit(urlsplit(self.server(kind))._replace(path=f"/{database}"))

    def _database(self, peer: Peer, url: str, installation: Installation, *, prepare: bool) -> Iterator[Database]:
        if prepare:
            _prepare(peer, url, installation)
        # honker and huey have files, not URLs; we look at them as at any.
        looks = Dibs(url if "://" in url else f"sqlite:///{url}").store.open()
        try:
            kept = peer.kept

            yield Database(
                peer, url, installation, lambda: _number(looks, peer.left), lambda: _number(looks, kept) if kept else None
            )  # fmt: skip
        finally:
            looks.close()

    def tidy(self, database: Database) -> None:
        """Have the planner know what was just enqueued, and no checkpoint be due, as on a server that runs for long.

        A server that was given is left to its own ways.
        """
        if database.peer.kind == "postgres" and "postgres" not in self._given:
            connection = Dibs(database.url).store.open()
            try:
                connection.answer(Execute("VACUUM ANALYZE", {}))
                connection.answer(Execute("CHECKPOINT", {}))
            finally:
                connection.close()

    def _in_redis(self, peer: Peer, installation: Installation) -> Database:
        url = self.server("redis")
        _ask_redis(url, "FLUSHALL")

        def left() -> int:
            return _ask_redis(url, "LLEN celery") + _ask_redis(url, "HLEN unacked")

        return Database(peer, url, installation, left, lambda: None)


def _prepare(peer: Peer, url: str, installation: Installation) -> None:
    if peer.module == "raw":
        Dibs(url).migrate()
        return
    with Process(peer.name, installation, {"do": "prepare", "url": url, "settings": peer.settings}) as process:
        process.wait()


def _number(connection: OwnConnection, sql: str) -> int:
    ((number,),) = connection.answer(Fetch(sql, {}))
    return int(number)


def _sqlite_url(peer: Peer, folder: Path) -> str:
    if peer.pins:
        return str(folder / "peer.db")
    return f"sqlite:///{folder / 'dibs.db'}?synchronous={peer.settings.get('synchronous', 'full')}"


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder on the disk that is gone afterwards, also when this process is killed."""
    leash = Leash(throwaway_base(durable=True), ending=signal.SIGTERM)
    try:
        yield Path(leash.directory)
    finally:
        leash.close()


@contextmanager
def _redis() -> Iterator[str]:
    programs = prefix("redis-server", "trixie", programs_in="bin")
    leash = Leash(throwaway_base(durable=True), ending=signal.SIGTERM)
    try:
        port = free_port()
        command = [*programs.command("bin/redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
        leash.start([*command, "--dir", str(leash.directory), *REDIS])
        url = f"redis://127.0.0.1:{port}/0"
        end = time.monotonic() + 20
        while True:
            try:
                _ask_redis(url, "DBSIZE")
                break
            except OSError:
                if time.monotonic() > end or leash.exit_code() is not None:
                    raise Failed(f"Redis does not start\n{leash.tail()}") from None
                time.sleep(0.02)
        yield url
    finally:
        leash.close()


def _ask_redis(url: str, command: str) -> int:
    """Send Redis one command whose answer is a number or OK: two of them need no client."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 6379), timeout=10) as connection:
        connection.sendall(f"{command}\r\n".encode())
        answer = connection.makefile("rb").readline()
    if answer.startswith(b"+OK"):
        return 0
    if not answer.startswith(b":"):
        raise OSError(f"Redis answers {answer!r}")
    return int(answer[1:])
