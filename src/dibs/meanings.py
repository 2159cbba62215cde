"""From what a driver raised on a connection of dibs' own to what a caller sees."""

from __future__ import annotations

from typing import NoReturn

from dibs.errors import (
    DatabaseError,
    DatabaseFull,
    DatabaseUnavailable,
    MissingPrivilege,
    ReadOnlyDatabase,
    SchemaError,
    UnsuitableDatabase,
)
from dibs.troubles import Trouble


def raise_as(trouble: Trouble, error: Exception) -> NoReturn:
    """Raise what a caller should see of an error that means this trouble."""
    if isinstance(error, DatabaseError):
        raise error
    reason = str(error).strip() or type(error).__name__
    if trouble is Trouble.READ_ONLY:
        raise ReadOnlyDatabase(f"the server takes no writes (a replica, or set read-only): {reason}") from error
    if trouble is Trouble.UNSUITABLE:
        raise UnsuitableDatabase(f"the server is set so that no queue can run on it: {reason}") from error
    if trouble is Trouble.NO_TABLE:
        raise SchemaError(
            f"the tables of dibs are missing or too old ({reason}): run `dibs migrate`, or have `dibs migrate --sql` "
            "run by whoever may"
        ) from error
    if trouble is Trouble.LOST:
        raise DatabaseUnavailable(f"the connection to the database was lost again and again: {reason}") from error
    if trouble is Trouble.FULL:
        raise DatabaseFull(f"the database has no room for this, or its disk fails: {reason}") from error
    if trouble is Trouble.LOCKED:
        raise DatabaseUnavailable(f"a lock in the database was not to be had in time: {reason}") from error
    if trouble is Trouble.DENIED:
        raise MissingPrivilege("", [], reason) from error
    if trouble is Trouble.OTHER and not is_of_a_driver(error):
        raise error
    raise DatabaseError(reason) from error


def is_of_a_driver(error: Exception) -> bool:
    """Does it come from a driver? What PEP 249 calls Error is in its ancestry then."""
    return any(kind.__name__ == "Error" and kind is not Exception for kind in type(error).__mro__)
