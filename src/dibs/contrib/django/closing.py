"""Django's rule for connections, kept around each job as around each request: those that are broken or older than
CONN_MAX_AGE are closed before and after.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from dibs.loop import loop_runs_here


def closing(job: Any) -> Iterator[None]:
    """Close old connections of a sync task's thread, before and after."""
    if loop_runs_here():  # there is no connection of Django's there; see `aclosing`
        yield
        return
    _close_old()
    try:
        yield
    finally:
        _close_old()


async def aclosing(job: Any) -> AsyncIterator[None]:
    """Close old connections of the one thread in which async code uses Django's ORM, before and after."""
    close = sync_to_async(_close_old, thread_sensitive=True)
    await close()
    try:
        yield
    finally:
        await close()


def _close_old() -> None:
    """Close them, but for those in a block: that is whose transaction the job is run in, inline or in a test."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
