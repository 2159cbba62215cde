"""What the processes of a run are told at their start, as JSON on their command lines. URLs are in their environments."""

from __future__ import annotations

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
