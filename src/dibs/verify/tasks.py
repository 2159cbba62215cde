"""The tasks that worker processes run while a database is verified. Each says aloud how far it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Literal

from dibs import ops
from dibs.app import Dibs
from dibs.bindings.inside import inside
from dibs.dialects.verify import verifying
from dibs.errors import LostClaim
from dibs.running import current_job
from dibs.tasks import SyncTask

#: Where the first run of `book` pauses: before its transaction, before its COMMIT, or after it.
Pause = Literal["begin", "commit", "end", ""]

#: How a task says what it does: a word, the job, its fence.
Say = Callable[[str, int, int], None]

STAY = "dibs.verify.stay"
BOOK = "dibs.verify.book"


class Tasks:
    """The tasks, registered on an app."""

    def __init__(self, app: Dibs, say: Say = lambda what, job, claims: None) -> None:
        statements = verifying(app.dialect)

        @app.task(name=STAY, queue="verify")
        def stay(seconds: float, later: float = 0.0) -> int:
            """Take this long in the first run, and `later` in another one; return the process's id."""
            job = current_job()
            say("began", job.id, job.claims)
            time.sleep(seconds if job.claims == 1 else later)
            return os.getpid()

        @app.task(name=BOOK, queue="verify")
        def book(pause: Pause, seconds: float, later: float = 0.0) -> None:
            """Write an effect and finish in one transaction; the first run pauses on its way, another one `later`."""
            job = current_job()

            def reached(place: Pause) -> None:
                say(place, job.id, job.claims)
                if pause == place:
                    time.sleep(seconds if job.claims == 1 else later)

            reached("begin")
            connection = app.store.open()
            try:
                connection.begin()
                job.finish({"pid": os.getpid()}, connection=inside(connection))
                effect = statements.write_effect(job.id, claims=job.claims, pid=os.getpid())
                ops.run(effect, connection)
                reached("commit")
                connection.commit()
                reached("end")
            except LostClaim:
                connection.rollback()
                say("refused", job.id, job.claims)
                raise
            finally:
                connection.close()

        self.stay: SyncTask[..., int] = stay
        self.book: SyncTask[..., None] = book
