"""Tables that have grown: claims, upkeep and what people look at take no longer for what is not theirs.

What statements read is counted by tests/conformance/test_plans.py; here is how long they take.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from anomaly.big import ROWS, analyze, ended, from_now, numbered, running, write
from anomaly.claiming import Claimer, busy
from commands import Command
from conformance.test_plans import BY_HAND
from databases import NAMES, Database, migrated

#: A table of a million rows, and a small one that says at least that all is answered.
SIZES = [20_000, pytest.param(ROWS, marks=pytest.mark.slow)]

MONTH = 30 * 86_400


@pytest.fixture(params=NAMES)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of the test's own: a large table is dropped in a moment, and deleted from in a minute."""
    yield from migrated(request.param, tmp_path)


@pytest.mark.slow
def test_more_than_a_million_rows(own: Database) -> None:
    """Half a million jobs of next month, as many that are done, and thousands that failed or run: a claim takes at most
    five times as long as without them, and no chore's statement takes longer than a tenth of a second."""
    with Claimer(own) as claimer:
        alone = claimer.p95()
    write(own, ROWS // 2, run_at=from_now(own, f"{MONTH} + number"))
    ended(own, ROWS // 2, "done")
    ended(own, ROWS // 20, "failed")
    running(own, ROWS // 20)
    write(own, ROWS // 100)
    analyze(own)
    with Claimer(own, enqueues=False) as claimer:
        among = claimer.p95()
        dialect = own.app().dialect
        chores = {
            "find past leases": claimer.takes(lambda: dialect.find_past(reachable=1e9, limit=10_000)),
            "find what can be pruned": claimer.takes(lambda: dialect.prunable(limit=500)),
            "fold": claimer.takes(lambda: dialect.fold(limit=1_000)),
            "lanes": claimer.takes(lambda: dialect.lanes(None)),
            "is a lease past": claimer.takes(lambda: dialect.past(None)),
        }
    print(f"{own.name}: claim {alone * 1e3:.1f} ms alone, {among * 1e3:.1f} ms among them")
    print({name: f"{took * 1e3:.1f} ms" for name, took in chores.items()})
    assert among <= 5 * alone
    assert {name: took for name, took in chores.items() if took > 0.1 * busy(alone)} == {}


@pytest.mark.slow
@pytest.mark.parametrize("drained", [False, True], ids=["of an empty table", "of a long queue"])
@pytest.mark.parametrize("name", NAMES)
def test_statistics_that_are_wrong(name: str, drained: bool, tmp_path: Path) -> None:
    """Taken when the table was empty, before 300,000 jobs came; or when they waited, before all but a hundred were done: a
    claim takes at most three times as long as on a table with the same past whose statistics are right.

    Claimed as a worker claims, from two tables in turns: what their past has left in the index, and what else the machine
    does, is the same for both."""

    def load(db: Database, *, fresh: bool) -> None:
        for statement in BY_HAND[db.kind]:
            db.execute(statement)
        if not (fresh or drained):
            analyze(db)
        write(db, 3 * ROWS // 10)
        if drained:
            if not fresh:
                analyze(db)
            db.execute("UPDATE dibs_jobs SET status = 'done', finished_at = run_at, expires_at = run_at WHERE id > 100")
        if fresh:
            analyze(db)

    with ExitStack() as stack:
        claimers: list[Claimer] = []
        for fresh in (False, True):
            (folder := tmp_path / str(fresh)).mkdir()
            db = stack.enter_context(contextmanager(migrated)(name, folder))
            load(db, fresh=fresh)
            claimers.append(stack.enter_context(Claimer(db, like_a_worker=True)))
        wrong, right = (
            min(times) for times in zip(*[[each.p95() for each in claimers] for _ in range(3)], strict=True)
        )
    statistics = "of a long queue" if drained else "of an empty table"
    print(f"{name}: claim {right * 1e3:.1f} ms with right statistics, {wrong * 1e3:.1f} ms with those {statistics}")
    assert wrong <= 3 * right + 0.002


#: What people look at.
LOOKS = [
    ["status"],
    ["status", "--json"],
    ["jobs"],
    ["jobs", "--status", "failed"],
    ["jobs", "--status", "ready"],
    ["jobs", "--status", "running", "--json"],
    ["jobs", "-q", "q3"],
    ["jobs", "-q", "rare"],
    ["jobs", "-q", "there is no such queue"],
    ["jobs", "--status", "failed", "-q", "q4"],
    ["show", "2000"],
    ["failed"],
    ["why", "q3"],
    ["workers"],
    ["locks"],
    ["metrics"],
]


@pytest.mark.parametrize("rows", SIZES)
def test_people_who_look(own: Database, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs in twenty queues, in all states: whatever is asked of a million of them is answered within a second, and
    claims go on meanwhile."""
    with Claimer(own) as claimer:
        alone = claimer.p95(200 if rows == ROWS else 5)
    queue = numbered(own, "q", "number % 20")
    ended(own, 3 * rows // 5, "done", queue=queue)
    ended(own, rows // 20, "failed", queue=queue)
    ended(own, rows // 20, "cancelled", queue=queue)
    write(own, rows // 5, queue=queue, run_at=from_now(own, f"{MONTH} + number"))
    write(own, 3 * rows // 50, queue=queue)
    running(own, rows // 25, queue=queue)
    write(own, 10, queue="'rare'")
    analyze(own)
    slow: dict[str, float] = {}
    dibs = Command(capsys)
    with Claimer(own) as claimer:
        claims = []
        for look in LOOKS:
            if rows == ROWS:
                dibs(*look, "--url", own.url)  # what is read for the first time may come from the disk
            began = time.monotonic()
            assert dibs(*look, "--url", own.url).code == 0
            took = time.monotonic() - began
            claims.append(claimer.once())
            if took > 1.0 * busy(alone):
                slow[" ".join(look)] = took
    assert slow == {}
    assert max(claims) <= max(20 * alone, 0.05)
