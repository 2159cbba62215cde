"""Which limit a measure ran into, decided by hand; no database, no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dibs.bench.comparison import Outcome, judge_ways
from dibs.bench.figures import times
from dibs.bench.limits import Limit, Seen, judge

#: Ten seconds of one process that was not busy, on a quiet machine, at a server elsewhere.
QUIET = Seen(
    seconds=10.0,
    cpus=[1.0],
    waited=1.0,
    statements=1_000,
    commits=500,
    round_trip=0.0001,
    commit=0.0002,
    busy=0.2,
    before=0.0,
    cores=4,
    is_here=False,
)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (QUIET, "nothing was full"),
        (replace(QUIET, cpus=[9.5]), "one Python process' CPU"),
        (replace(QUIET, cpus=[9.5, 8.0]), "the Python processes' CPU"),
        (replace(QUIET, waited=9.5, commit=0.018), "commits (fsync): 18.00 ms each"),
        (replace(QUIET, waited=9.5, round_trip=0.009), "the network's round trip: 9.00 ms"),
        (replace(QUIET, waited=9.5, round_trip=0.009, is_here=True), "the round trip to the server: 9.00 ms"),
        (replace(QUIET, waited=9.5), "the server's work: 9.30 ms a statement"),
        (replace(QUIET, waited=9.5, has_server=False), "the database's work: 9.30 ms a statement"),
        (replace(QUIET, busy=0.99), "this machine's CPU"),
        (replace(QUIET, busy=0.99, is_here=True), "the server's CPU, on this machine"),
        (replace(QUIET, busy=0.99, is_here=True, cpus=[8.0] * 4), "this machine's CPU"),
        (replace(QUIET, busy=0.99, is_here=True, before=0.8), "other programs on this machine"),
        (
            replace(QUIET, busy=0.99, is_here=True, before=0.8, waited=9.5, commit=0.018),
            "commits (fsync): 18.00 ms each",
        ),
        (replace(QUIET, busy=0.99, is_here=True, has_server=False, cpus=[8.0] * 4), "this machine's CPU"),
        (replace(QUIET, busy=None, waited=9.5), "the server's work: 9.30 ms a statement"),
    ],
)
def test_limit(seen: Seen, name: str) -> None:
    """What was in use nearly all of the time is the limit: processors first, then what was waited for."""
    limit = judge(seen)
    assert limit.name == name
    assert 0 <= limit.share <= 1
    assert limit.why


def test_percentiles_are_values_that_were_measured() -> None:
    """The p-th percentile is the smallest value that p percent are not above; of one value all are that one."""
    found = times([second / 1000 for second in range(1, 101)])
    assert (found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms) == (50, 95, 99, 100)
    one = times([0.007])
    assert (one.p50_ms, one.p99_ms) == (7, 7)


def outcome(way: str, rows: float, wait: float, *, batch: int = 1, tries: float = 1.0, deadlocks: int = 0) -> Outcome:
    return Outcome(
        way=way,
        hold_ms=5,
        batch=batch,
        claims=100,
        rows=100,
        seconds=1,
        rows_per_second=rows,
        of_best=rows / 1000,
        wait_p50_ms=wait,
        wait_p99_ms=wait,
        tries=tries,
        deadlocks=deadlocks,
        timeouts=0,
        duplicates=0,
        cpu_share=0.1,
        limit=Limit("x", 1, "y"),
    )


def test_wins_and_losses() -> None:
    """A way is compared with those that take as many rows a claim; waits, tries in vain and errors count against it."""
    outcomes = [
        outcome("batch", 1000, 20, batch=10),
        outcome("single", 300, 2),
        outcome("slow", 20, 90, tries=7.5, deadlocks=3),
    ]
    batch, single, slow = judge_ways([(each.way, "") for each in outcomes], outcomes)
    assert (batch.wins, batch.loses) == (["at 5 ms: the most rows"], ["at 5 ms: waits of 20 ms"])
    assert single.wins == ["at 5 ms: the most rows, one row a claim", "at 5 ms: the shortest waits"]
    assert single.loses == []
    assert slow.wins == []
    assert slow.loses == [
        "at 5 ms: 0.07 of the best's rows, one row a claim",
        "at 5 ms: waits of 90 ms",
        "at 5 ms: 7.5 tries a claim",
        "at 5 ms: 3 deadlocks",
    ]
