"""Throwaway database servers for tests and benchmarks, as any user, without installing anything.

    from servers import Unavailable, running

    with running("postgres", "18") as server:
        connect(server.url)
        server.kill()       # -9
        server.start()      # recovers, on the same port
        with server.replica() as standby:
            connect(standby.user_url)
        with running("pgbouncer", options={"server": server.url}) as pooler:
            connect(pooler.url)

They listen on 127.0.0.1 only, and end with the process that started them, also if that is killed.
`python scripts/servers --help` does the same for any command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from servers.catalogue import engine
from servers.engine import Engine, Options
from servers.errors import StartFailed, Unavailable
from servers.server import Server

__all__ = ["Engine", "Options", "Server", "StartFailed", "Unavailable", "engine", "running"]


@contextmanager
def running(
    kind: str, version: str | None = None, *, durable: bool = False, options: Options | None = None
) -> Iterator[Server]:
    """Run a fresh server; raise Unavailable if there is none to be had.

    `durable` means that each commit is on the disk, as in production, instead of as fast as tests like it.
    """
    with Server(engine(kind, version), durable=durable, options=options) as server:
        server.start()
        yield server
