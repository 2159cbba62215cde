"""The order of blows of a run: a pure function of its seed, so that it can be had again."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is done to the system."""

    KILL = "SIGKILL a worker"
    TERMINATE = "SIGTERM a worker"
    NAP = "SIGSTOP a worker for less than a lease"
    FREEZE = "SIGSTOP a worker past its lease"
    KILL_PRODUCER = "SIGKILL a producer"
    SESSIONS = "end the sessions of a worker"
    PRODUCER_SESSIONS = "end the sessions of a producer"
    ALL_SESSIONS = "end all sessions"
    SLOW = "slow line of a worker"
    STALL = "stalled line of a worker"
    CUT = "cut the line of a worker"
    CUT_ALL = "cut all lines"
    BLACK_HOLE = "black hole before a worker"
    DEAF = "answers to a worker get lost"
    PRODUCER_DEAF = "answers to a producer get lost"
    IMMEDIATE = "restart the server, immediate mode"
    KILL_SERVER = "SIGKILL the server"
    AWAY = "the server is away past all leases"
    PROMOTE = "kill the primary, promote the replica"


#: How often each, beside the others; and how long it lasts, in leases.
PROCESSES = {Kind.KILL: 8, Kind.TERMINATE: 4, Kind.NAP: 4, Kind.FREEZE: 5, Kind.KILL_PRODUCER: 2}
NETWORK = {
    Kind.SESSIONS: 5,
    Kind.PRODUCER_SESSIONS: 2,
    Kind.ALL_SESSIONS: 2,
    Kind.SLOW: 2,
    Kind.STALL: 3,
    Kind.CUT: 4,
    Kind.CUT_ALL: 2,
    Kind.BLACK_HOLE: 4,
    Kind.DEAF: 5,
    Kind.PRODUCER_DEAF: 3,
}
SERVER = {Kind.IMMEDIATE: 2, Kind.KILL_SERVER: 2, Kind.AWAY: 1}

LEASES: dict[Kind, tuple[float, float]] = {
    Kind.NAP: (0.05, 0.4),
    Kind.FREEZE: (1.3, 3.0),
    Kind.SLOW: (0.3, 1.5),
    Kind.STALL: (0.1, 2.0),
    Kind.BLACK_HOLE: (0.3, 3.0),
    Kind.DEAF: (0.05, 1.5),
    Kind.PRODUCER_DEAF: (0.05, 1.5),
    Kind.AWAY: (2.0, 3.0),
}


@dataclass(frozen=True)
class Blow:
    """One thing that is done: when (seconds from the start), to whom (the n-th of its kind), for how long (seconds)."""

    number: int
    at: float
    kind: Kind
    whom: int
    seconds: float

    def __str__(self) -> str:
        lasting = f", {self.seconds:.1f} s" if self.seconds else ""
        return re.sub("a (worker|producer)", rf"\1 {self.whom + 1}", self.kind) + lasting


def plan(
    seed: int,
    *,
    number: int,
    minutes: float,
    workers: int,
    producers: int,
    lease: float,
    network: bool,
    server: bool,
    promote: bool,
) -> list[Blow]:
    """Return the blows of a run. With few of them each kind still comes before any comes again."""
    dice = random.Random(seed)
    weights = {**PROCESSES, **(NETWORK if network else {}), **(SERVER if server else {})}
    kinds = list(weights)
    dice.shuffle(kinds)
    drawn = max(number - promote, 0)
    kinds = kinds[:drawn] + dice.choices(list(weights), list(weights.values()), k=max(drawn - len(kinds), 0))
    dice.shuffle(kinds)
    if promote:
        kinds.insert(number // 2, Kind.PROMOTE)
    step = minutes * 60 / max(number, 1)
    blows = []
    for place, kind in enumerate(kinds):
        of_producer = "producer" in kind
        whom = dice.randrange(producers if of_producer else workers)
        low, high = LEASES.get(kind, (0.0, 0.0))
        blows.append(
            Blow(place + 1, step * (place + dice.random()), kind, whom, round(lease * dice.uniform(low, high), 2))
        )
    return blows
