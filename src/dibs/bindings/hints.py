"""A word of advice beside an error of the user's own driver, which is not ours to replace."""

from __future__ import annotations

import re

#: How databases say that a table or a column is not there. (That the text names a table of ours says nothing: some
#: libraries quote the whole statement in every error.)
_MISSING = re.compile(r"does(n't| not) exist|no such (table|column)|no column named|unknown column", re.IGNORECASE)

#: And how, that they take no writes.
_READ_ONLY = re.compile(
    r"in a read.only transaction|--(super-)?read-only|in read-only mode|readonly database", re.IGNORECASE
)


class Advising:
    """Adds what to do to an error about a missing table, or about a server that takes no writes, raised by one of our
    statements on a user's connection."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and _MISSING.search(str(error)):
            error.add_note("the tables of dibs may be missing or too old in this database: run `dibs migrate`")
        elif error is not None and _READ_ONLY.search(str(error)):
            error.add_note(
                "this server takes no writes: this connection leads to a replica, or to what was the primary before a "
                "failover. Close it, connect again, and begin your transaction anew"
            )
