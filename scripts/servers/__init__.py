"""Throwaway database servers for tests and benchmarks, as any user, without installing anything.

    from servers import Unavailable, running

    with running("postgres", "18") as server:
        connect(server.url)
        server.kill()       # -9
        server.start()      # recovers, on the same port
        with server.replica(synchronous=True) as standby:
            connect(url_of(server, standby))
            server.kill()
            standby.promote()   # with all that was committed
        with running("pgbouncer", options={"server": server.url}) as pooler:
            connect(pooler.url)

They listen on 127.0.0.1 only, and end with the process that started them, also if that is killed.
`python scripts/servers --help` does the same for any command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

from servers.catalogue import engine
from servers.engine import Engine, Options
from servers.errors import StartFailed, Unavailable
from servers.server import Server

__all__ = ["Engine", "Options", "Server", "StartFailed", "Unavailable", "engine", "running", "url_of"]


def url_of(*servers: Server) -> str:
    """Return one URL that names servers which stand in for each other, in this order."""
    first = urlsplit(servers[0].url)
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return urlunsplit(first._replace(netloc=f"{first.netloc.rpartition('@')[0]}@{hosts}"))


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
