"""The task of the demo: compress one file. Written as a task should be: it may run twice and do no harm.

A result is written under a name of this run's own and renamed when it is whole, so there is never half of one.
"""

from __future__ import annotations

import bz2
import os
import time
from collections.abc import Iterator
from pathlib import Path

from dibs.app import Dibs
from dibs.demo.run_log import RunLog
from dibs.errors import Cancel, Release
from dibs.retries import Backoff
from dibs.running import current_job
from dibs.tasks import SyncTask

NAME = "dibs.demo.compress"

#: Bytes read at a time.
CHUNK = 1 << 20

#: The demo's jobs may be pruned after this many seconds: they are in somebody's database.
RETENTION = 3600


def register(
    app: Dibs, *, queue: str, unfinished: Path, runs: RunLog, pause: float
) -> SyncTask[[str, str], dict[str, int]]:
    """Make the task on this app. `unfinished` is the folder of half-written results; `pause` (seconds) makes it last."""

    @app.task(
        name=NAME,
        queue=queue,
        max_attempts=5,
        backoff=Backoff(first=0.5, factor=2.0, cap=5.0),
        retention=RETENTION,
    )
    def compress(source: str, result: str) -> dict[str, int]:
        job = current_job()
        runs.begin(job)
        partial = unfinished / f"{job.id}-{job.claims}.bz2"
        compressor = bz2.BZ2Compressor()
        size = 0
        with partial.open("wb") as file:
            for chunk in _chunks(source):
                size += len(chunk)
                file.write(compressor.compress(chunk))
            file.write(compressor.flush())
            compressed = file.tell()
        time.sleep(pause)
        if job.lost:
            raise Release("the lease may be over: whoever runs it now writes the result")
        os.replace(partial, result)
        runs.end(job)
        return {"bytes": size, "compressed": compressed}

    return compress


def _chunks(source: str) -> Iterator[bytes]:
    """Read a file. One that can't be read (any more) is no reason to try again."""
    try:
        with open(source, "rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        raise Cancel(f"the file can't be read: {error}") from error
