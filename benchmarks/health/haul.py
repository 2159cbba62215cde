"""The long haul: jobs offered at a rate for as long as is asked, then as fast as it goes, then at the rate once more.

Cut into slices, each with the times of the workers' ops and what the server counts. The last slice has the load of the
first ones, so the two can be compared: what has become slower meanwhile is what decays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ours.connections import snapshot
from ours.crew import Crew
from ours.timings import Times
from peers.grounds import Grounds
from peers.peer import DIBS
from peers.process import Failed, Process
from servers.progress import say

from health.counters import Counters, Counts

CLAIMERS = 2

#: Short enough that the chore of taking back claims is done several times in a short slice.
LEASE = 10.0

#: How the phases are called: at the rate, as fast as it goes, at the rate again.
STEADY, FLOOD, AGAIN = "steady", "flood", "again"

#: What is shown of the ops, and under what name. A claim is one from the cursor or a full scan.
OPS = {
    "claim": "claim",
    "full scan": "full scan",
    "settle": "settle",
    "find_past": "expiry",
    "first_due": "scouting",
    "lanes": "lanes",
    "unknown_task": "probe",
}


@dataclass(frozen=True)
class Plan:
    """How much: jobs per second for so many minutes, and how many jobs in all; slices of so many seconds.

    `warm`: seconds of work before the first slice, for connections, prepared statements and the first pages.
    """

    rate: float
    minutes: float
    jobs: int
    slice: float
    warm: float

    @property
    def slices(self) -> int:
        return max(round(self.minutes * 60 / self.slice), 1)

    @property
    def steady(self) -> int:
        """Jobs before the flood."""
        return int(self.rate * (self.warm + self.slices * self.slice))

    @property
    def again(self) -> int:
        return int(self.rate * self.slice)

    @property
    def flood(self) -> int:
        return max(self.jobs - self.steady - self.again, 0)


@dataclass
class Slice:
    """What happened in one stretch of time."""

    phase: str
    seconds: float
    ran: int
    backlog: int
    ops: dict[str, Times]
    before: Counts
    after: Counts

    @property
    def claims(self) -> Times:
        """All claims, from the cursor and from the beginning of the lane."""
        both = Times()
        for kind in ("claim", "full scan"):
            if kind in self.ops:
                both.take_in(self.ops[kind].plain())
        return both

    def plain(self) -> dict[str, Any]:
        """Return it for `--json`; times in milliseconds."""
        ops = {"all claims": self.claims} | {name: self.ops[kind] for kind, name in OPS.items() if kind in self.ops}
        commits = None if self.after.commits is None else self.after.commits - (self.before.commits or 0)
        return {
            "phase": self.phase,
            "seconds": round(self.seconds, 2),
            "jobs": self.ran,
            "backlog": self.backlog,
            "dead": self.after.dead,
            "log_bytes_per_job": round((self.after.log - self.before.log) / self.ran) if self.ran else None,
            "commits_per_job": round(commits / self.ran, 4) if commits is not None and self.ran else None,
            "ops": {
                name: {
                    "count": times.count,
                    "p50": milliseconds(times.quantile(0.5)),
                    "p99": milliseconds(times.quantile(0.99)),
                    "share": round(times.seconds / self.seconds / CLAIMERS, 4),
                    "rows": times.rows,
                }
                for name, times in ops.items()
            },
        }


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


@dataclass
class Haul:
    """One run from its first slice to its last."""

    database: str
    held: bool
    slices: list[Slice] = field(default_factory=list)

    def of(self, phase: str) -> list[Slice]:
        return [each for each in self.slices if each.phase == phase]

    def ratios(self) -> dict[str, float | None]:
        """Return p99 in the last slice to p99 in the first, both at the same rate, for each kind of op."""
        first, last = self.of(STEADY)[0].plain()["ops"], self.of(AGAIN)[-1].plain()["ops"]
        found = {}
        for name in ("all claims", *OPS.values()):
            one, other = (ops.get(name, {}).get("p99") for ops in (first, last))
            found[name] = round(other / one, 2) if one and other else None
        return found

    def plain(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "snapshot": "held" if self.held else "none",
            "last_to_first": self.ratios(),
            "slices": [each.plain() for each in self.slices],
        }


def haul(grounds: Grounds, kind: str, plan: Plan, *, held: bool) -> Haul:
    """Run it once; raise Failed unless each job was run once and has its row."""
    peer = DIBS.on(kind)
    jobs = plan.steady + plan.flood + plan.again
    with grounds.database(peer) as database, Crew(database.url, jobs) as crew, Counters(database.url) as counters:
        steady = crew.producer(0, plan.steady, rate=plan.rate)
        flood = crew.producer(plan.steady, plan.flood) if plan.flood else None
        again = crew.producer(plan.steady + plan.flood, plan.again, rate=plan.rate)
        crew.hire(CLAIMERS, lease=LEASE)
        with snapshot(database.url, held=held):
            result = Haul(grounds.version(peer), held)
            crew.go()
            for each in _slices(crew, counters, plan, steady, flood, again):
                result.slices.append(each)
                say(f"{kind}, snapshot {'held' if held else 'not held'}: {_told(each)}")
            crew.wait(jobs)
            crew.dismiss()
            if (left := database.left()) or database.kept() != jobs or crew.repeated():
                kept, repeated = database.kept(), crew.repeated()
                raise Failed(f"of {jobs:,} jobs {left:,} are left, {kept:,} are done, {repeated:,} were run twice")
    return result


def _slices(
    crew: Crew, counters: Counters, plan: Plan, steady: Process, flood: Process | None, again: Process
) -> Iterator[Slice]:
    cutter = _Cutter(crew, counters)
    steady.heard("ready")
    steady.tell("go")
    time.sleep(plan.warm)
    cutter.cut(STEADY)
    for _ in range(plan.slices):
        time.sleep(plan.slice)
        yield cutter.cut(STEADY)
    steady.heard("offered")
    crew.wait(plan.steady)
    if flood:
        flood.heard("ready")
        flood.tell("go")
        cutter.cut(FLOOD)
        while (left := plan.steady + plan.flood - crew.run()) > 0:
            end = time.monotonic() + plan.slice
            while time.monotonic() < end and left > 0:
                time.sleep(0.05)
                left = plan.steady + plan.flood - crew.run()
            yield cutter.cut(FLOOD)
        flood.heard("offered")
    again.heard("ready")
    again.tell("go")
    cutter.cut(AGAIN)
    time.sleep(plan.slice)
    yield cutter.cut(AGAIN)
    again.heard("offered")


class _Cutter:
    """Cuts the time since the last cut off."""

    def __init__(self, crew: Crew, counters: Counters) -> None:
        self._crew = crew
        self._counters = counters
        self._start = time.monotonic()
        self._ran = 0
        self._counts = counters.read()

    def cut(self, phase: str) -> Slice:
        ran, offered = self._crew.run(), self._crew.offered.count()
        ops, counts, now = self._crew.account(), self._counters.read(), time.monotonic()
        piece = Slice(phase, now - self._start, ran - self._ran, offered - ran, ops, self._counts, counts)
        self._start, self._ran, self._counts = now, ran, counts
        return piece


def _told(piece: Slice) -> str:
    p50, p99 = (milliseconds(piece.claims.quantile(share)) or 0.0 for share in (0.5, 0.99))
    rate = piece.ran / piece.seconds
    return f"{piece.phase}: {rate:,.0f} jobs/s, claim p50 {p50:.1f} ms, p99 {p99:.1f} ms, backlog {max(piece.backlog, 0):,}"
