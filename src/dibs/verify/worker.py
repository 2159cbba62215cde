"""One worker process of `dibs verify`: an ordinary worker on the scratch tables, with a short lease.

Its orders come on stdin, so that a password is in no list of processes; it stops when stdin ends, also where whoever
started it was killed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading

import msgspec

from dibs import ops
from dibs.app import Dibs
from dibs.bindings import connector
from dibs.bindings.binding import OwnConnection
from dibs.cli.logs import log_to_stderr
from dibs.cli.secrets import hide
from dibs.dialects.verify import verifying
from dibs.events import Event
from dibs.scratch import Place
from dibs.store import Store
from dibs.verify.tasks import Tasks

#: Seconds in which running jobs may end when there is no more use for this process.
GRACE = 1.0


class Orders(msgspec.Struct):
    """What a worker process is told at its start. `name` is what its connections are opened under."""

    place: Place
    queue: str
    lease: float
    name: str


class Said(msgspec.Struct, omit_defaults=True):
    """What a worker process says: `session` with its number, or what a job has reached, or that it is `lost`."""

    what: str
    job: int = 0
    claims: int = 0
    session: int = 0


class Aloud:
    """Says things on stdout, a line each, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, said: Said) -> None:
        with self._lock:
            sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
            sys.stdout.buffer.flush()


class WatchedDibs(Dibs):
    """An app in the scratch place that says which sessions it opens."""

    def __init__(self, orders: Orders, say: Aloud) -> None:
        place = orders.place
        super().__init__(lambda: place.url, schema=place.schema, prefix=place.prefix)
        self._say = say
        self._name = orders.name

    def new_store(self, *, name: str = "dibs", size: int = 5, gap: float = 15.0) -> Store:
        connect = connector(self.url)
        session = verifying(self.dialect).session

        def watched(name: str) -> OwnConnection:
            connection = connect(self._name)
            self._say(Said("session", session=ops.run(session(), connection)))
            return connection

        return Store(self.dialect, watched, name=name, size=size, gap=gap)


def main() -> None:
    """Work until there is no more use for this process."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    hide(f"://{orders.place.url.user}:{orders.place.url.password}@")
    log_to_stderr(logging.ERROR)
    aloud = Aloud()
    app = WatchedDibs(orders, aloud)
    Tasks(app, lambda what, job, claims: aloud(Said(what, job, claims)))

    @app.on("lost")
    def lost(event: Event) -> None:
        aloud(Said("lost", event.job_id))

    worker = app.worker(queues=[orders.queue], concurrency=2, lease=orders.lease, grace=GRACE)

    def follow() -> None:
        sys.stdin.buffer.read()
        worker.stop()

    threading.Thread(target=follow, daemon=True).start()
    try:
        worker.run()
    except BrokenPipeError:
        os._exit(1)  # nobody listens any more
