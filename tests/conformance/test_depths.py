"""What the database is asked for metrics: right numbers, and a bound on what it has to read for them."""

from __future__ import annotations

import pytest

from databases import Database
from dibs import Dibs, depths
from dibs.depths import Depths
from dibs.metrics import Buckets


def read(app: Dibs) -> dict[tuple[str, ...], float]:
    """Return what a scrape is told, by name and labels."""
    measured = Depths(app)
    try:
        found = measured.families(raises=True)
    finally:
        measured.close()
    values: dict[tuple[str, ...], float] = {}
    for family in found:
        for sample in family.samples:
            assert not isinstance(sample.value, Buckets)
            values[(family.name, *sample.labels.values())] = sample.value
    return values


def test_depths(db: Database) -> None:
    """By queue and status, what is scheduled apart, whatever the priorities; how old the oldest is; what is paused, past its
    lease, a duplicate; and who works."""
    app = db.app()

    @app.task(name="t", queue="mail", max_attempts=1)
    def t(number: int = 0) -> None:
        assert number != 13

    t.using(key="k").enqueue(0)
    t.using(key="k").enqueue(0)
    t.enqueue(13)
    app.worker(burst=True).run()
    old, _, running, *_ = app.enqueue_many([t.using(priority=number % 2).call(number) for number in range(5)])
    t.using(delay=3600).enqueue(0)
    t.using(queue="later", delay=3600).enqueue(0)
    app.pause("idle")
    db.execute("UPDATE dibs_jobs SET run_at = '2020-01-01 00:00:00' WHERE id = :id", id=old.id)
    db.execute(
        "UPDATE dibs_jobs SET status = 'running', claims = 1, lease = 60, lease_until = '2020-01-01 00:00:00', lease_owner = 'w' "
        "WHERE id = :id",
        id=running.id,
    )
    found = read(app)
    assert {key: number for key, number in found.items() if key[0] == "dibs_jobs"} == {
        ("dibs_jobs", "mail", "ready"): 4,
        ("dibs_jobs", "mail", "scheduled"): 1,
        ("dibs_jobs", "later", "ready"): 0,
        ("dibs_jobs", "later", "scheduled"): 1,
        ("dibs_jobs", "mail", "running"): 1,
    }
    assert found["dibs_oldest_ready_seconds", "mail"] > 100_000_000
    assert found["dibs_oldest_ready_seconds", "later"] == 0
    assert (found["dibs_leases_past", "mail"], found["dibs_queue_paused", "idle"]) == (1, 1)
    assert (found["dibs_jobs_ended", "mail", "done"], found["dibs_jobs_ended", "mail", "failed"]) == (1, 1)
    assert (found[("dibs_duplicates",)], found[("dibs_up",)], found["dibs_workers", "working"]) == (1, 1, 0)
    app.close()


def test_counting_has_a_bound(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a lane no more than so many jobs are counted, and that is said; nor of more lanes than so many."""
    app = db.app()
    t = app.task(name="t")(lambda: None)
    app.enqueue_many([t.using(queue="long").call() for _ in range(25)] + [t.using(queue="short").call()])
    monkeypatch.setattr(depths, "MOST_OF_LANE", 20)
    found = read(app)
    assert (found["dibs_jobs", "long", "ready"], found["dibs_jobs", "short", "ready"]) == (20, 1)
    assert [key for key in found if key[0] == "dibs_jobs_not_counted"] == [("dibs_jobs_not_counted", "long")]
    monkeypatch.setattr(depths, "MOST_LANES", 1)
    assert read(app)[("dibs_lanes_left_out",)] == 1
    app.close()


def test_asked_often(db: Database) -> None:
    """The database is asked once for many scrapes within some seconds, and not told apart by them."""
    app = db.app()
    t = app.task(name="t")(lambda: None)
    t.enqueue()
    measured = Depths(app)
    first = measured.families()
    t.enqueue()
    assert measured.families() == first
    measured.close()
    app.close()
