"""Clocks that disagree, zones that differ, moments that are rounded: only the database's clock counts, to the microsecond."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from conformance.test_times import GRAIN
from conftest import wait_for
from databases import Database
from dibs import ops
from dibs.errors import InvalidArgument
from dibs.jobs import Lane, Wanted
from worker.harness import LEASE, Site
from worker.program import Program
from worker.users import of_driver, write

ZONES = ("UTC", "Asia/Kolkata", "America/St_Johns")
OFFSETS = ("+00:00", "+05:30", "-02:30")

NOW = {
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "postgres": "SELECT clock_timestamp()",
    "mysql": "SELECT UTC_TIMESTAMP(6)",
}


def database_now(site: Site[Any]) -> datetime:
    return site.app.dialect.moment(site.db.fetch(NOW[site.db.kind])[0][0])


class Telling(Program):
    """Its tasks take their time and return what their process takes for the time."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)

        @self.app.task(name="tell")
        def tell(seconds: float) -> list[float]:
            with self.diary.run():
                time.sleep(seconds)
                return [os.getpid(), time.time()]

        self.tell = tell


@pytest.fixture
def telling(db: Database, tmp_path: Path) -> Iterator[Site[Telling]]:
    with Site(db, tmp_path, Telling) as site:
        yield site


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return what lets processes that are started from now on have a wall clock of their own, set by a file."""
    found = importlib.util.find_spec("libfaketime")
    library = Path(found.origin or "").parent / "vendor/libfaketime/src/libfaketime.so.1" if found else Path("nowhere")
    if not library.exists():
        pytest.skip("libfaketime is not installed here")

    def fake(file: Path) -> None:
        monkeypatch.setenv("LD_PRELOAD", str(library))
        monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(file))
        monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        monkeypatch.setenv("FAKETIME_NO_CACHE", "1")

    return fake


def test_workers_with_wrong_clocks(
    telling: Site[Telling], fake_clock: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is ten minutes ahead, one as much behind, and the first one's clock jumps amid its jobs: nothing is taken from
    anybody, what is due later starts then, and all times on the rows are the database's."""
    site, tell = telling, telling.program.tell
    if not site.db.locks_rows:
        pytest.skip("its clock is the machine's")
    workers = []
    for name, offset in {"ahead": "+600s", "behind": "-600s"}.items():
        (tmp_path / name).write_text(offset)
        fake_clock(tmp_path / name)
        workers.append(site.launch(concurrency=4))
    monkeypatch.undo()
    for worker in workers:
        wait_for(worker.works, within=30, what="a worker to begin")
    before = database_now(site)
    long = [tell.enqueue(seconds=2.5 * LEASE).id for _ in range(6)]
    site.wait_started(*long)
    due = {tell.using(run_at=datetime.now(UTC) + timedelta(seconds=1)).enqueue(seconds=0.0).id: time.monotonic() + 1}
    due |= {tell.using(delay=1).enqueue(seconds=0.0).id: time.monotonic() + 1 for _ in range(4)}
    (tmp_path / "ahead").write_text("-7200s")
    jobs = site.wait_ended([*long, *due])
    after = database_now(site)
    nothing_lost_nothing_twice(site, [*long, *due], crashed=False)
    assert {(job.status, job.attempts) for job in jobs} == {("done", 1)}
    for job_id, moment in due.items():
        (start,) = site.diary.entries("start", job=job_id)
        assert -0.02 < start.at - moment < 5, "within a poll, on a busy machine"
    seen = {round((job.result[1] - time.time()) / 600) for job in jobs[: len(long)]}
    assert seen == {-1, -12}, "they really saw other times"
    for job in jobs:
        assert job.started_at is not None
        assert job.finished_at is not None
        assert before <= job.created_at <= job.started_at <= job.finished_at <= after


@pytest.fixture
def own_zone() -> Iterator[None]:
    yield
    time.tzset()


@pytest.mark.usefixtures("own_zone")
@pytest.mark.parametrize(
    "workers_zone", [pytest.param(zone, marks=() if zone == ZONES[2] else pytest.mark.slow) for zone in ZONES]
)
def test_time_zones(site: Site[Program], workers_zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the zone of the producer, of its session, of the worker, and of the time that was given: a job starts at that
    instant. A time without a zone is refused, since it would mean another one to each of them."""
    monkeypatch.setenv("TZ", workers_zone)
    site.start()
    due: dict[int, tuple[float, datetime]] = {}
    for zone in ZONES:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        for offset in OFFSETS if site.db.locks_rows else OFFSETS[:1]:
            with closing(of_driver(site.app)) as connection:
                if site.db.kind == "postgres":
                    write(connection, f"SET TIME ZONE INTERVAL '{offset}' HOUR TO MINUTE")
                elif site.db.kind == "mysql":
                    write(connection, f"SET time_zone = '{offset}'")
                for given in (UTC, timezone(timedelta(hours=5, minutes=30))):
                    when = datetime.now(given) + timedelta(seconds=1)
                    task = site.program.note.using(connection=connection, run_at=when)
                    due[task.enqueue(number=1).id] = (time.monotonic() + 1, when)
                with pytest.raises(InvalidArgument, match="run_at"):
                    site.program.note.using(connection=connection, run_at=datetime.now() + timedelta(seconds=1))
                connection.commit()
    jobs = site.wait_ended(due)
    for job in jobs:
        moment, when = due[job.id]
        (start,) = site.diary.entries("start", job=job.id)
        assert -0.02 < start.at - moment < 5, "within a poll, on a busy machine"
        assert job.run_at.tzinfo is UTC
        assert timedelta(0) <= job.run_at - when <= GRAIN.get(site.db.kind, timedelta(0))


@pytest.mark.parametrize("number", [15, pytest.param(100, marks=pytest.mark.slow)])
def test_a_job_for_now_is_due_now(site: Site[Program], number: int) -> None:
    """Also in the second half of a second: no time is rounded up into the future."""
    dialect, store = site.app.dialect, site.app.store
    tasks = dialect.names(["note"])
    for n in range(number):
        wait_for(lambda: 0.5 < time.time() % 1 < 0.95, every=0.01)
        job = site.program.note.enqueue(number=n)
        claim = dialect.claim(
            Wanted(Lane("default", 0), since=None, tasks=tasks, worker="w", lease=60.0, start=1, limit=1)
        )
        assert [claimed.id for claimed in store.run(lambda: claim)] == [job.id]
    if site.db.kind == "mysql":
        columns = """
            SELECT DISTINCT datetime_precision FROM information_schema.columns
            WHERE table_schema = DATABASE() AND data_type = 'datetime' AND table_name LIKE 'dibs%'
        """
        assert site.db.fetch(columns) == [(6,)]


def test_in_a_transaction_that_began_a_while_ago(site: Site[Program]) -> None:
    """A delay counts from the call and not from the transaction's beginning, and a lease from the claim: it ends in the
    future, however old the transaction is."""
    dialect, lease = site.app.dialect, 1.0
    now = site.program.note.using(priority=3).enqueue(number=1)
    with closing(of_driver(site.app)) as users, closing(site.db.connect()) as own:
        write(users, "SELECT count(*) FROM dibs_jobs")
        own.begin(writes=False) if site.db.kind == "sqlite" else own.begin()
        began = time.monotonic()
        wait_for(lambda: time.monotonic() > began + 1.2 * lease, every=0.1)
        called = database_now(site)
        delayed = site.program.note.using(connection=users, delay=1).enqueue(number=2)
        bulk = site.app.enqueue_many(
            [site.program.note.using(connection=users, delay=1).call(number=n) for n in range(3)]
        )
        users.commit()
        for job in [delayed, *bulk]:
            assert site.job(job.id).run_at >= called + timedelta(seconds=1) - timedelta(milliseconds=1)
        asked = database_now(site)
        claim = dialect.claim(
            Wanted(
                Lane("default", 3), since=None, tasks=dialect.names(["note"]), worker="w", lease=lease, start=1, limit=1
            )
        )
        if site.db.kind == "sqlite":
            own.rollback()  # whoever has read an older state may not write
            own.begin()
        assert [claimed.id for claimed in ops.run(claim, own)] == [now.id]
        own.commit()
    until = site.job(now.id).lease_until
    assert until is not None
    assert until >= asked + timedelta(seconds=lease) - timedelta(milliseconds=1)
