"""Wakeups: a thread that hears when there is something new, on databases that can tell.

Only a hint: whoever hears nothing finds the job by polling. Behind a pooler that lends server sessions by the
transaction LISTEN hears nothing, ever, and would go on in a session that is somebody else's by then: there it is not
sent. Elsewhere it is tried out at the start whether anything is heard. Either is said once.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from dibs import ops
from dibs.bindings.binding import OwnConnection
from dibs.errors import DatabaseError
from dibs.sessions import are_lent
from dibs.store import Store

logger = logging.getLogger("dibs")

#: What is told to find out whether anything is heard; no queue has this name.
TEST = ""

#: How long (seconds) to wait for it.
TEST_WAIT = 3.0

#: How long (seconds) to wait before connecting again.
RETRY_EVERY = 1.0

#: How often (seconds) a connection that listens is asked whether it is still there: nothing else is sent over it, and
#: what a network has forgotten is as silent as a queue where nothing happens.
ASK_EVERY = 10.0


class Wakeups:
    """Calls `woke(queue, moment)` for each queue that is told of: what is new there is due since that moment."""

    def __init__(self, store: Store, woke: Callable[[str | None, Any | None], None], deaf: Callable[[], None]) -> None:
        """`deaf` is called when nothing can be heard here: poll more often."""
        self._store = store
        self._dialect = store.dialect
        self._woke = woke
        self._deaf = deaf
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="dibs-wakeups", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=2)

    def _loop(self) -> None:
        while not self._closing.is_set():
            connection: OwnConnection | None = None
            try:
                generation = self._store.generation
                lent = are_lent(self._store, self._dialect)
                if not lent:
                    connection = self._store.open()
                    ops.run(self._dialect.listen(), connection)
                if connection is None or not self._hears(connection):
                    why = "a pooler lends the server's sessions" if lent else "a pooler stands between?"
                    logger.warning("notifications are not heard here (%s): new jobs are found by polling", why)
                    self._deaf()
                    return
                self._woke(None, None)  # what was told while nobody listened
                asked = time.monotonic()
                while not self._closing.is_set() and self._store.generation == generation:
                    for told in connection.hear(0.5):
                        self._hear(told)
                    if time.monotonic() > asked + ASK_EVERY:
                        ops.run(self._dialect.time(), connection)
                        asked = time.monotonic()
            except DatabaseError as error:
                logger.debug("not listening: %s", error)
            except Exception as error:  # noqa: BLE001 - only a hint; polling finds what is not heard
                if connection is None or self._closing.is_set():
                    logger.debug("not listening: %s", error)
                else:
                    logger.debug("not listening any more: %s (%s)", error, connection.trouble(error).name)
            finally:
                if connection is not None:
                    connection.close()
            self._closing.wait(RETRY_EVERY)

    def _hears(self, connection: OwnConnection) -> bool:
        end = time.monotonic() + TEST_WAIT
        self._store.run(lambda: self._dialect.tell([TEST]))
        self._store.close()  # what listens is a connection of its own, and this one is not needed again
        while time.monotonic() < end and not self._closing.is_set():
            told = connection.hear(0.2)
            if told:
                for each in told:
                    self._hear(each)
                return True
        return self._closing.is_set()

    def _hear(self, told: str) -> None:
        try:
            queue, told_at = json.loads(told)
            moment = datetime.fromisoformat(told_at)
        except (ValueError, TypeError):
            return  # somebody else's; anyone may notify
        if isinstance(queue, str) and queue != TEST:
            self._woke(queue, moment)
