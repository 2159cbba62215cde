"""Looks at what there really is: the results on the disk, unpacked, beside their sources, and the jobs' rows."""

from __future__ import annotations

import bz2
import hashlib
import os
from enum import StrEnum
from typing import BinaryIO

from dibs.app import Dibs
from dibs.demo.files import FileJob, Source
from dibs.jobs import JobRecord

#: Rows asked for at a time.
PAGE = 1_000


class Look(StrEnum):
    """What a look at a source and its result found."""

    VERIFIED = "verified"
    MISSING = "there is no result"
    DAMAGED = "the result does not unpack to what its source has"
    CHANGED = "the source was changed or removed while the demo ran"


def look_at(job: FileJob) -> Look:
    """Unpack a result and compare it with its source."""
    if not _is_as_it_was(job.source):
        return Look.CHANGED
    try:
        with bz2.open(job.result) as result:
            unpacked = _checksum(result)
    except FileNotFoundError:
        return Look.MISSING
    except (OSError, EOFError):
        return Look.DAMAGED
    try:
        with open(job.source.path, "rb") as file:
            same = _checksum(file) == unpacked
    except OSError:
        return Look.CHANGED
    if same:
        return Look.VERIFIED
    return Look.DAMAGED if _is_as_it_was(job.source) else Look.CHANGED


def _is_as_it_was(source: Source) -> bool:
    try:
        found = os.stat(source.path)
        os.close(os.open(source.path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (source.size, source.modified)


def _checksum(file: bz2.BZ2File | BinaryIO) -> bytes:
    checksum = hashlib.sha256()
    while chunk := file.read(1 << 20):
        checksum.update(chunk)
    return checksum.digest()


def rows_of(app: Dibs, queue: str) -> list[JobRecord]:
    """Return all jobs of a queue as the database has them now."""
    rows: list[JobRecord] = []
    page = app.jobs(queue=queue, limit=PAGE)
    while page:
        rows += page
        page = app.jobs(queue=queue, limit=PAGE, before=page[-1].id) if len(page) == PAGE else []
    return rows
