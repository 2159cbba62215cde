"""One throwaway server: started on a free port, stopped, killed, started again, and gone at the end."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Self

from servers.engine import Engine, Options
from servers.errors import StartFailed
from servers.leash import Leash
from servers.places import give, throwaway_base
from servers.ports import free_port

COMES_UP_WITHIN = 60.0
GOES_DOWN_WITHIN = 60.0
# So long may the children of a killed server take to end by themselves.
LINGERS = 0.5
GLANCE = 0.02
PORT_IS_TAKEN = ("address already in use", "address in use", "could not bind", "bind on tcp/ip port")


class Server:
    """A server on 127.0.0.1. Its data is fresh, and is deleted by `close()` or when this process ends."""

    def __init__(self, engine: Engine, *, durable: bool = False, options: Options | None = None) -> None:
        self.engine = engine
        self.durable = durable
        self.options = dict(options or {})
        self.port = 0
        self.pid: int | None = None
        self._following: Options = {}
        self._leash = Leash(throwaway_base(durable=durable), ending=engine.ending)
        self.directory = self._leash.directory

    @property
    def kind(self) -> str:
        return self.engine.kind

    @property
    def version(self) -> str:
        return self.engine.version

    @property
    def url(self) -> str:
        """The URL of the account that may do everything, without a password."""
        return self.engine.url(self.port)

    @property
    def user_url(self) -> str:
        """The URL of an ordinary account with a password. On a replica it really can't write."""
        return self.engine.user_url(self.port)

    @property
    def running(self) -> bool:
        """Is the server's process there?"""
        return self.pid is not None and self._leash.exit_code() is None

    def log(self, lines: int = 100) -> str:
        """Return the last lines that the server wrote."""
        return self._leash.tail(lines)

    def start(self) -> None:
        """Start it, on the port that it had before; return when it accepts connections."""
        if self.running:
            return
        self._nothing_left_running()
        if self.port:
            self._start_on(self.port)
            return
        if not (self.directory / "data").exists():
            self._fill_from(self.engine.template())
        for _ in range(10):
            try:
                self._start_on(free_port())
                return
            except StartFailed as failure:
                if not any(sign in failure.log.lower() for sign in PORT_IS_TAKEN):
                    raise
        raise StartFailed("ten ports were free, and taken a moment later", self._leash.tail())

    def stop(self, mode: str = "fast") -> None:
        """Stop it: "fast" in good order, "immediate" so that the next start has to recover."""
        self._leash.signal(self.engine.stop_signals[mode])
        self._wait_until_stopped()

    def kill(self) -> None:
        """Kill the server's process (-9), as a machine that is short of memory would."""
        self._leash.signal(self.engine.stop_signals["kill"])
        self._wait_until_stopped()

    def replica(self, *, synchronous: bool = False, options: Options | None = None) -> Server:
        """Return a running read-only server that is fed by this one. A context manager too; close it first.

        With `synchronous` each commit here waits until the replica has it: a commit that was answered is not lost with
        this server. Also while there is no such replica: nothing is committed here any more once it is gone.

        PostgreSQL is stopped and started for it: the data of a stopped server is the simplest base backup. So is any
        other for a synchronous one.
        """
        ours, theirs = self.engine.synchronous if synchronous else ({}, {})
        replica = Server(self.engine, durable=self.durable)
        replica.options = {**self.options, **theirs, **(options or {})}
        try:
            if self.engine.replica_copies_primary or synchronous:
                self.stop()
            copied = self.directory / "data" if self.engine.replica_copies_primary else self.engine.template()
            replica._fill_from(copied)
            self.options.update(ours)
            self.start()
            replica._following = self.engine.follow(replica.directory, self.port)
            replica.start()
        except BaseException:
            replica.close()
            raise
        return replica

    def promote(self) -> None:
        """Make this replica a primary with all that it has received, whether its primary is there or not; return when it
        takes writes. Kill the old primary first: nothing here keeps it from taking writes too."""
        self.engine.promote(self.directory, self.port, self._leash.signal)
        self._following = {}  # at its next start it is a primary, too

    def close(self) -> None:
        """End it without ceremony, and remove its data."""
        self.pid = None
        self._leash.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fill_from(self, data: os.PathLike[str]) -> None:
        self._leash.run(["cp", "-a", "--", os.fspath(data), str(self.directory / "data")])
        if self.engine.user:
            give(self.directory / "data", self.engine.user)

    def _start_on(self, port: int) -> None:
        command = self.engine.command(
            self.directory, port, durable=self.durable, options={**self.options, **self._following}
        )
        self.engine.before_start(self.directory)
        pid = self._leash.start(command, user=self.engine.user)
        deadline = time.monotonic() + COMES_UP_WITHIN
        while not self.engine.ready(self.directory, port, pid):
            if (code := self._leash.exit_code()) is not None:
                raise StartFailed(f"{self.engine} ended with {code} at its start", self._leash.tail())
            if time.monotonic() > deadline:
                self._leash.end()
                problem = f"{self.engine} did not come up in {COMES_UP_WITHIN:.0f} s"
                raise StartFailed(problem, self._leash.tail())
            time.sleep(GLANCE)
        self.pid, self.port = pid, port

    def _wait_until_stopped(self) -> None:
        deadline = time.monotonic() + GOES_DOWN_WITHIN
        while self._leash.exit_code() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.engine} did not stop in {GOES_DOWN_WITHIN:.0f} s")
            time.sleep(GLANCE)
        self.pid = None

    def _nothing_left_running(self) -> None:
        """See to it that a killed server's children are gone: until they are, its data can't be opened."""
        self.pid = None
        deadline = time.monotonic() + LINGERS
        while not self._leash.quiet() and time.monotonic() < deadline:
            time.sleep(GLANCE)
        self._leash.end()
