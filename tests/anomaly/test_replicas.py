"""What docs/skip-locked.md says about replicas, asked of real ones. Only when asked for: each is two servers of its own."""

from __future__ import annotations

import pytest
from servers import Unavailable, running

from conformance.skip_locked.lab import LABS, Lab
from conftest import wait_for
from databases import Database
from dibs.bindings.binding import OwnConnection
from dibs.ops import Execute, Fetch

CLAIM = Fetch("SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", {})


def error_of(connection: OwnConnection) -> str:
    """Return what a claim is refused with, or "" if it is not."""
    connection.begin()
    try:
        connection.answer(CLAIM)
    except Exception as error:
        return f"{getattr(error, 'sqlstate', '')} {error}"
    finally:
        connection.rollback()
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [name for name in ("postgres", "mysql", "mariadb") if name in LABS])
def test_a_claim_on_a_replica(kind: str) -> None:
    """It is refused: 25006, or 1290. On MySQL and MariaDB an account with the privilege passes a mere read_only, and locks
    the replica's rows, without a word."""
    try:
        with running(kind) as primary:
            lab = Lab(Database(kind, primary.url))
            lab.make(3)
            lab.close()
            with primary.replica() as replica:
                ordinary = Database(kind, replica.url if kind == "postgres" else replica.user_url).connect()
                wait_for(lambda: there(ordinary), what="the table on the replica")
                assert ("25006" if kind == "postgres" else "1290") in error_of(ordinary)
                ordinary.close()
                privileged = Database(kind, replica.url).connect()
                if kind == "mysql":
                    assert "1290" in error_of(privileged)
                    privileged.answer(Execute("SET GLOBAL super_read_only = OFF", {}))
                assert ("25006" in error_of(privileged)) if kind == "postgres" else error_of(privileged) == ""
                if kind != "postgres":
                    assert privileged.answer(Execute("UPDATE jobs SET note = 'changed here'", {})) == 3
                privileged.close()
    except Unavailable as unavailable:
        pytest.skip(str(unavailable))


def there(connection: OwnConnection) -> bool:
    try:
        rows: list[tuple[int]] = connection.answer(Fetch("SELECT count(*) FROM jobs", {}))
    except Exception:
        return False
    return rows[0][0] == 3
