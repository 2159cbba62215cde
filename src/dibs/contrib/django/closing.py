"""Django's rule for connections, kept around each job as around each request: those that are broken or older than
CONN_MAX_AGE are closed before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from dibs.running import _current


def closing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a task's function so that a worker closes old connections around it. Called by hand it is as it was."""
    if iscoroutinefunction(function):

        @wraps(function)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            if not _in_worker():
                return await function(*args, **kwargs)
            # Where async code uses the ORM: in the one thread that Django keeps for it.
            close = sync_to_async(close_old_connections, thread_sensitive=True)
            await close()
            try:
                return await function(*args, **kwargs)
            finally:
                await close()

        return arun

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not _in_worker():
            return function(*args, **kwargs)
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return run


def _in_worker() -> bool:
    return _current.get(None) is not None
