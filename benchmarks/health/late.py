"""Late commits: producers whose transactions stay open for a while, so that their jobs stand before the claim's cursor.

Measured is the delay from the moment when a commit is asked for to the job's first line, beside a worker without a cursor
(which finds everything, since it looks at everything, and pays for it when there is much to look at).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ours.connections import snapshot
from ours.crew import Crew
from ours.fill import end_all, fill
from peers.contest import Spread
from peers.grounds import Grounds
from peers.peer import DIBS
from peers.process import Failed
from servers.progress import say

PRODUCERS, CLAIMERS = 6, 2

#: A transaction stays open for up to so long (seconds), with so many jobs.
LONGEST, TOGETHER = 0.3, 100

#: What is committed within so many seconds of the first is not timed: the workers have just been started, and their first look
#: at the lane, which has no cursor yet, is a full scan in any case (0.1 s with 400,000 dead rows). Half of a run that is short.
FIRST_LOOKS = 1.0

#: How long (seconds) after the last commit a job counts as left behind. A lane is scanned in full every 10 s at least.
PATIENCE = 30.0


@dataclass(frozen=True)
class Way:
    """How it is claimed, and on what."""

    name: str
    held: bool = False
    cursor: bool = True
    notify: bool = True


CURSOR = Way("with the cursor")
NO_CURSOR = Way("without a cursor", cursor=False)
HELD = Way("with the cursor, snapshot held", held=True)
HELD_UNTOLD = Way("with the cursor, snapshot held, no notifications", held=True, notify=False)
HELD_NO_CURSOR = Way("without a cursor, snapshot held", held=True, cursor=False)
WAYS = (CURSOR, NO_CURSOR, HELD, HELD_UNTOLD, HELD_NO_CURSOR)


@dataclass(frozen=True)
class Delays:
    """What one run gave; times in seconds."""

    jobs: int
    p50: float
    p99: float
    longest: float
    left: int


@dataclass
class Late:
    """All runs, way by way."""

    database: str
    dead: int
    runs: dict[Way, list[Delays]]

    def ratio(self) -> Spread:
        """Return p99 with the cursor to p99 without one, run by run, where nothing holds a snapshot."""
        return Spread.of(
            [ours.p99 / theirs.p99 for ours, theirs in zip(self.runs[CURSOR], self.runs[NO_CURSOR], strict=True)]
        )

    def plain(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "dead_rows": self.dead,
            "p99_with_to_without_cursor": vars(self.ratio()),
            "ways": [
                {
                    "way": way.name,
                    "held": way.held,
                    "cursor": way.cursor,
                    "notify": way.notify,
                    "runs": [vars(run) for run in runs],
                }
                for way, runs in self.runs.items()
            ],
        }


def late(grounds: Grounds, kind: str, *, seconds: float, dead: int, pairs: int) -> Late:
    """Measure all ways in turns, the other way round each time."""
    result = Late(grounds.version(DIBS.on(kind)), dead, {way: [] for way in WAYS})
    for number in range(pairs):
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            delays = _once(grounds, kind, way, seconds=seconds, dead=dead)
            result.runs[way].append(delays)
            say(
                f"{kind}, late commits {way.name}: {delays.jobs:,} jobs, p50 {delays.p50 * 1e3:.1f} ms, "
                f"p99 {delays.p99 * 1e3:.1f} ms, {delays.left:,} left"
            )
    return result


def _once(grounds: Grounds, kind: str, way: Way, *, seconds: float, dead: int) -> Delays:
    # Each producer has as many numbers as it could need.
    share = int(seconds / (LONGEST / 2) * 3 + 10) * TOGETHER
    with (
        grounds.database(DIBS.on(kind)) as database,
        Crew(database.url, PRODUCERS * share) as crew,
        snapshot(database.url, held=way.held),
    ):
        if way.held:
            fill(database.url, dead)
            end_all(database.url)
        grounds.tidy(database)
        producers = [
            crew.late_producer(
                number * share,
                share,
                seconds=seconds,
                longest=LONGEST,
                together=TOGETHER,
                settings={"notify": way.notify},
            )
            for number in range(PRODUCERS)
        ]
        crew.hire(CLAIMERS, timed=True, cursor=way.cursor, notify=way.notify)
        for producer in producers:
            producer.heard("ready")
        crew.go()
        for producer in producers:
            producer.tell("go")
        jobs = sum(producer.heard("offered")[1]["jobs"] for producer in producers)
        end = time.monotonic() + PATIENCE
        while crew.run() < jobs and time.monotonic() < end:
            time.sleep(0.05)
        crew.dismiss()
        if repeated := crew.repeated():
            raise Failed(f"{repeated:,} of {jobs:,} jobs were run twice")
        return _delays(crew, jobs)


def _delays(crew: Crew, jobs: int) -> Delays:
    pairs = [pair for pair in zip(crew.committed().all(), crew.begun().all(), strict=True) if all(pair)]
    first, last = min(pairs)[0], max(pairs)[0]
    start = first + min(FIRST_LOOKS, (last - first) / 2)
    delays = sorted(max(begun - committed, 0.0) for committed, begun in pairs if committed >= start)
    return Delays(jobs, delays[len(delays) // 2], delays[int(len(delays) * 0.99)], delays[-1], jobs - len(pairs))
