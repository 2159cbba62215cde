"""`dibs verify` as a person runs it: on sound databases all passes, on broken ones it says what, and nothing stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import pytest

from commands import Ended, environment, process
from conftest import wait_for
from databases import Database
from leftovers import leftovers

NAMES = [
    "server",
    "clock",
    "row contention",
    "empty queue",
    "duplicate replay",
    "transactional enqueue",
    "crash recovery",
    "fencing",
    "exactly once",
    "lost connection",
]


def verify(db: Database, folder: Path, *, url: str | None = None, before: str = "pass") -> Ended:
    return process(["verify", "--json"], folder, url=url or db.url, before=before, timeout=90)


def outcomes(ended: Ended) -> dict[str, str]:
    return {check["name"]: check["outcome"] for check in ended.json["checks"]}


def evidence(ended: Ended, name: str) -> str:
    (found,) = [check["evidence"] for check in ended.json["checks"] if check["name"] == name]
    return str(found)


def test_a_sound_database_passes(db: Database, tmp_path: Path) -> None:
    """Every promise is kept, in well under a minute; what can't be tried says why; no job of the user's is touched."""
    app = db.app()

    @app.task(name="dibs.verify.stay", queue="crash")
    def stay(seconds: float) -> None: ...

    mine = stay.enqueue(7.0)
    ended = verify(db, tmp_path)
    assert ended.code == 0, ended.out + ended.err
    assert ended.out.count("\n") == 1
    skipped = set() if db.locks_rows else {"lost connection"}
    assert outcomes(ended) == {name: "SKIPPED" if name in skipped else "PASS" for name in NAMES}
    report: dict[str, Any] = ended.json
    assert (report["database"], report["passed"]) == (str(app.url), True)
    assert 2 < report["seconds"] < 60
    assert all(check["evidence"] for check in report["checks"])
    assert "kill -9 of pid" in evidence(ended, "crash recovery")
    assert "LostClaim" in evidence(ended, "fencing")
    assert leftovers(db) == []
    assert (app.job(mine.id).status, app.job(mine.id).claims) == ("ready", 0)
    assert [job.id for job in app.jobs()] == [mine.id]
    app.close()


@contextmanager
def without_rights(db: Database) -> Iterator[str]:
    """Yield the URL of somebody who may look and make nothing: a session set read-only, or a user who only reads."""
    if db.kind == "postgres":
        yield f"{db.url}?options=-c%20default_transaction_read_only%3Don"
        return
    user = f"reader_{uuid.uuid4().hex[:8]}"
    parts = urlsplit(db.url)
    db.execute(f"CREATE USER {user} IDENTIFIED BY 'of the tests'")
    try:
        db.execute(f"GRANT SELECT ON {parts.path.strip('/')}.* TO {user}")
        address = f"{user}:of%20the%20tests@{parts.netloc.rpartition('@')[2]}"
        yield urlunsplit(parts._replace(netloc=address))
    finally:
        db.execute(f"DROP USER {user}")


def test_who_may_not_write_fails(db: Database, tmp_path: Path) -> None:
    """Where no table can be made the server fails, with the reason, and the rest is skipped."""
    if not db.locks_rows:
        pytest.skip("a file has no users")
    with without_rights(db) as url:
        ended = verify(db, tmp_path, url=url)
    assert ended.code == 1, ended.err
    assert outcomes(ended) == {name: "FAIL" if name == "server" else "SKIPPED" for name in NAMES}
    assert ended.json["passed"] is False
    assert "1 of 10 checks failed: server" in ended.err
    assert "of the tests" not in ended.out + ended.err
    told = "read-only" if db.kind == "postgres" else "denied"
    assert told in evidence(ended, "server")
    assert leftovers(db) == []


#: Makes every queue in this database a broken one: a key is never the same twice, and effects are written double.
SABOTAGE = """
    CREATE FUNCTION dibs_test_spoil_key() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN NEW.task_key := NEW.task_key || random()::text; RETURN NEW; END $$;
    CREATE FUNCTION dibs_test_double() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF pg_trigger_depth() = 1 THEN
            EXECUTE format('INSERT INTO %s SELECT ($1).*', TG_RELID::regclass) USING NEW;
        END IF;
        RETURN NEW;
    END $$;
    CREATE FUNCTION dibs_test_sabotage() RETURNS event_trigger LANGUAGE plpgsql AS $$
    DECLARE made record;
    BEGIN
        FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE' LOOP
            IF made.object_identity ~ 'dibs_keys$' THEN
                EXECUTE format('CREATE TRIGGER spoil BEFORE INSERT ON %s FOR EACH ROW
                    EXECUTE FUNCTION dibs_test_spoil_key()', made.object_identity);
            ELSIF made.object_identity ~ 'effects$' THEN
                EXECUTE format('CREATE TRIGGER twice BEFORE INSERT ON %s FOR EACH ROW
                    EXECUTE FUNCTION dibs_test_double()', made.object_identity);
            END IF;
        END LOOP;
    END $$;
    CREATE EVENT TRIGGER dibs_test_sabotage ON ddl_command_end EXECUTE FUNCTION dibs_test_sabotage()
"""


def test_broken_promises_fail(db: Database, tmp_path: Path) -> None:
    """What the database does wrong is told, each under its name, with what was seen; the rest passes all the same."""
    if db.kind != "postgres":
        pytest.skip("elsewhere nothing can be told to spoil tables that are yet to be made")
    db.execute(SABOTAGE)
    try:
        ended = verify(db, tmp_path)
    finally:
        db.execute("DROP EVENT TRIGGER dibs_test_sabotage")
        db.execute("DROP FUNCTION dibs_test_sabotage(), dibs_test_double(), dibs_test_spoil_key()")
    assert ended.code == 1, ended.err
    broken = {"duplicate replay", "fencing", "exactly once"}
    assert outcomes(ended) == {name: "FAIL" if name in broken else "PASS" for name in NAMES}
    assert "new: True" in evidence(ended, "duplicate replay")
    assert "effects by (claims, pid) [(2, " in evidence(ended, "exactly once")
    assert "3 of 10 checks failed: duplicate replay, fencing, exactly once" in ended.err
    assert leftovers(db) == []


AN_HOUR_AGO = """
import datetime, dibs.verify.quiet as quiet
class Behind(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) - datetime.timedelta(hours=1)
quiet.datetime = Behind
"""


@contextmanager
def at_work(db: Database, folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """Start a run; yield it and its workers when one of them has been frozen."""
    running = subprocess.Popen(
        [sys.executable, "-m", "dibs", "verify"],
        cwd=folder,
        env=environment(db.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        def with_one_frozen() -> list[psutil.Process]:
            assert running.poll() is None
            workers = psutil.Process(running.pid).children()
            frozen = any(worker.status() == psutil.STATUS_STOPPED for worker in workers if worker.is_running())
            return workers if frozen else []

        yield running, wait_for(with_one_frozen, what="a worker that stands still")
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_nothing_outlives_it(db: Database, tmp_path: Path, number: signal.Signals) -> None:
    """Told to stop it removes all; after kill -9 its workers end, the frozen one too, and the next run removes the rest."""
    if db.name not in ("sqlite", "postgres"):
        pytest.skip("nothing here is this database's own")
    with at_work(db, tmp_path) as (running, workers):
        running.send_signal(number)
        _, err = running.communicate(timeout=20)
        assert psutil.wait_procs(workers, timeout=60)[1] == []  # one may wait for a lock that the frozen one has
    if number is signal.SIGTERM:
        assert running.returncode == 130, err
        assert "Traceback" not in err
    else:
        assert leftovers(db) != []
        said = ""

        def removed() -> Ended | None:
            nonlocal said  # until the server has noticed that the run is no more, its lock is held
            ended = verify(db, tmp_path, before=AN_HOUR_AGO)
            said += ended.err
            return ended if leftovers(db) == [] else None

        ended = wait_for(removed, within=60, what="what was left over to be removed")
        assert ended is not None
        assert "has left over" in said
        assert outcomes(ended)["clock"] == "FAIL"  # a busy machine may be too slow for others
        assert "is 3,600.0 s ahead" in evidence(ended, "clock")
    assert leftovers(db) == []
