"""A server of a test's own, which may be stopped, set read-only and hidden behind a proxy, and a worker's view of it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import pytest
from servers import Server, Unavailable, running

from databases import NAMES, Database

#: On what these tests run: as `scripts/failover` says. Else most of them on one database, which is enough for a smoke,
#: and on both those where the databases differ.
_ASKED = os.environ.get("DIBS_TEST_OUTAGES_ON", "").split()
BOTH = _ASKED or [kind for kind in ("postgres", "mysql") if kind in NAMES]
ONE = _ASKED or BOTH[:1]

#: What is committed is in the system's hands then, so a killed server has it when it comes back.
KEPT_BY_THE_SYSTEM = {
    "postgres": {"synchronous_commit": "on"},
    "mysql": {"innodb_flush_log_at_trx_commit": "2"},
    "mariadb": {"innodb_flush_log_at_trx_commit": "2"},
}


@contextmanager
def own_server(kind: str, **options: str) -> Iterator[Server]:
    """Run a server with dibs' tables in its database; skip the test if there is none to be had."""
    try:
        with running(kind, options={**KEPT_BY_THE_SYSTEM[kind], **options}) as server:
            Database(kind, server.url).app().migrate()
            yield server
    except Unavailable as unavailable:
        pytest.skip(str(unavailable))


def at_port(url: str, port: int) -> str:
    """Return the same URL with another port of this machine, such as a proxy's."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}"))


class Refusal:
    """Where a server would be: whoever connects is sent away, and the moment (monotonic) is noted."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.tries: list[float] = []
        self._thread = threading.Thread(target=self._refuse, daemon=True)

    def _refuse(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.tries.append(time.monotonic())
                connection.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
