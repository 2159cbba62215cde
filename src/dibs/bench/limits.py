"""Which limit did a measure run into? Decided from what was counted; nothing is measured here.

The rule is the one of bottlenecks: what was in use nearly all of the time is what held the rest up. First the
processors, then the database that was waited for, whose time is split into commits, round trips and the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

#: From this share of the time on a processor, or waiting for the database, is what everything else waits for.
FULL = 0.85
MOSTLY = 0.5


class Limit(msgspec.Struct, frozen=True):
    """What held a measure up, which share of the time (0 to 1) it was in use, and how that was judged."""

    name: str
    share: float
    why: str

    def __str__(self) -> str:
        return f"{self.name} ({self.why})"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was counted during a measure. Times are seconds."""

    seconds: float
    cpus: Sequence[float]  # the processor's time of each of our processes
    waited: float  # in which a process of ours had a question at the database, all processes together
    statements: int
    commits: int
    round_trip: float  # of one SELECT 1
    commit: float  # of one commit that had something to write, its round trip not in it
    busy: float | None  # the share of all processors of this machine; None where nobody could tell
    before: float  # the same, before anything was measured
    cores: int
    is_here: bool  # does the server share this machine?
    has_server: bool = True  # else the database's work is done in our own processes


def judge(seen: Seen) -> Limit:
    """Return what was in use nearly all of the time."""
    number = len(seen.cpus)
    time = max(seen.seconds, 1e-9)
    fullest = max(seen.cpus) / time
    ours = sum(seen.cpus) / time / seen.cores
    database = min(seen.waited / time / number, 1.0)
    beside = f"it waited for the database {_percent(database)} of the time"
    if not seen.has_server:
        beside = f"the database, which works in it, took {_percent(database)}"
    if fullest >= FULL:
        if number == 1:
            return Limit("one Python process' CPU", fullest, f"busy {_percent(fullest)} of the time; {beside}")
        return Limit("the Python processes' CPU", fullest, f"the busiest of {number} was at {_percent(fullest)}")
    strangers = None
    if seen.busy is not None and seen.busy >= FULL:
        machine, is_ours = _machine(seen, seen.busy, ours)
        if is_ours:
            return machine
        strangers = machine
    if database >= MOSTLY:
        return _database(seen, database, number)
    if strangers is not None:
        return strangers
    return Limit("nothing was full", max(fullest, database), f"CPU {_percent(fullest)} of a core; {beside}")


def _machine(seen: Seen, busy: float, ours: float) -> tuple[Limit, bool]:
    """Say whose work filled this machine's processors, and whether it was the bench's: ours or the server's."""
    strangers = min(seen.before, max(busy - ours, 0.0))
    server = max(busy - ours - strangers, 0.0) if seen.is_here and seen.has_server else 0.0
    why = f"{seen.cores} cores {_percent(busy)} busy: our processes {_percent(ours)}"
    why += f", the server {_percent(server)}" if server else ""
    why += f", what ran here before {_percent(strangers)}" if strangers else ""
    if strangers > max(ours, server):
        return Limit("other programs on this machine", busy, why), False
    return Limit("the server's CPU, on this machine" if server > ours else "this machine's CPU", busy, why), True


def _database(seen: Seen, share: float, number: int) -> Limit:
    """Say what a database that was waited for needed its time for."""
    commits = min(seen.commits * seen.commit, seen.waited)
    trips = min(seen.statements * seen.round_trip, seen.waited - commits)
    rest = seen.waited - commits - trips
    of_all = max(seen.waited, 1e-9) / share
    counts = f"{_count(seen.statements, 'statement')} and {_count(seen.commits, 'commit')} took {_percent(share)} of the time"
    if commits >= max(trips, rest):
        return Limit(
            f"commits (fsync): {_ms(commits / seen.commits)} each", commits / of_all, f"{counts}, mostly the commits"
        )
    if trips >= rest:
        name = "the round trip to the server" if seen.is_here else "the network's round trip"
        return Limit(f"{name}: {_ms(seen.round_trip)}", trips / of_all, f"{counts}, mostly on the way")
    each = rest / max(seen.statements, 1)
    whose = "the server's work" if seen.has_server else "the database's work"
    return Limit(
        f"{whose}: {_ms(each)} a statement",
        rest / of_all,
        f"{counts}, neither on the way nor in commits but in its CPU, its disk or its locks",
    )


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
