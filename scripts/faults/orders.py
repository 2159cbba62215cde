"""What the processes of a run are told at their start, as JSON on their command lines. URLs are in their environments."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class WorkerOrders(msgspec.Struct):
    """For a worker; durations in seconds."""

    book: str
    lease: float
    grace: float
    concurrency: int


class ProducerOrders(msgspec.Struct):
    """For a producer. `rate` is requests per second, `first` the number of its first one."""

    book: str
    seed: int
    first: int
    rate: float


# -- for the victims of `steps` ----------------------------------------------------------------------------

LEASE = 3.0

#: Seconds in which a victim that lives is done.
WITHIN = 120.0


class When(StrEnum):
    """Beside the request."""

    BEFORE = "before"  # it was never sent
    DURING = "during"  # sent, and the answer not read: who knows how far the server is
    AFTER = "after"  # carried out and answered


class How(StrEnum):
    """What happens."""

    KILL = "kill -9"
    CUT = "cut"
    ENDED = "ended"  # the server ends the session


class VictimOrders(msgspec.Struct, frozen=True):
    """What happens at which request. `tag` is the number of this victim: its queue is called by it, and its requests are
    numbered from it."""

    book: str
    tag: int
    at: int
    when: When
    how: How
