"""What can go wrong with a database, by what follows from it.

Each driver has its own codes; `bindings/` translates them into these, and everybody else decides by these.
"""

from __future__ import annotations

from enum import Enum


class Trouble(Enum):
    """Why a database refused, told by what one should do next."""

    CONFLICT = "a deadlock or a serialization failure: the same transaction may be tried again"
    LOCKED = "a lock was not to be had in time: try again later"
    LOST = "the connection is gone: connect again"
    FULL = "no room for what was to be written, or a disk that fails: it did not happen, try again later"
    READ_ONLY = "this server takes no writes: connect again, perhaps elsewhere"
    UNSUITABLE = "the server is set in a way on which no queue can run"
    NO_TABLE = "a table or a column is missing: migrate"
    DENIED = "a privilege is missing: the message names the object"
    OTHER = "anything else, such as a value the database refuses: trying again does not help"
