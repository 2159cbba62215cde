"""What docs/skip-locked.md says about MySQL and MariaDB alone."""

from __future__ import annotations

import pytest

from conformance.skip_locked.lab import WAITED, Lab, on

pytestmark = on("mysql")


def test_an_empty_claim_holds_up_producers(lab: Lab) -> None:
    """At REPEATABLE READ, the default, a claim that finds nothing locks the gap where the next job would go. At READ
    COMMITTED it does not."""
    lab.plain.run("DELETE FROM jobs")
    worker, producer = lab.session(), lab.session()
    for level, waited in (("REPEATABLE READ", WAITED[lab.server]), ("READ COMMITTED", None)):
        worker.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}; BEGIN")
        assert worker.ids(lab.claim(1)) == []
        assert producer.error("INSERT INTO jobs (id) VALUES (1)") == waited
        worker.run("ROLLBACK")


def test_a_skipped_row_is_half_locked(lab: Lab) -> None:
    """Who skips a row keeps its entry in the index locked, also at READ COMMITTED: whoever has the row can't change its
    status until the skipper commits."""
    holder, skipper = lab.session(), lab.session()
    for session in (holder, skipper):
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN")
    holder.run("SELECT id FROM jobs WHERE id = 1 FOR UPDATE")
    assert skipper.ids(lab.claim(1)) == [2]
    settle = "UPDATE jobs SET status = 'done' WHERE id = 1"
    assert holder.error(settle) == WAITED[lab.server]
    skipper.run("COMMIT")
    assert holder.error(settle) is None


def test_force_index(lab: Lab) -> None:
    """A claim with FORCE INDEX goes by the index and sorts nothing, on a table of ten rows too."""
    explain = "EXPLAIN" if lab.mariadb else "EXPLAIN FORMAT=TRADITIONAL"
    plan = lab.plain.run(f"{explain} {lab.claim(1).replace('SELECT id', 'SELECT id, note')}")[0]
    assert plan.count("jobs_ready") == 2, "possible, and chosen"
    assert "filesort" not in str(plan[-1])


@pytest.mark.parametrize("engine", ["MyISAM", "MEMORY"])
def test_other_engines_lock_nothing(lab: Lab, engine: str) -> None:
    """They take the words and lock nothing, without a warning: two sessions have the same row."""
    lab.plain.run(f"DROP TABLE IF EXISTS queues; CREATE TABLE queues (id INT PRIMARY KEY) ENGINE = {engine}")
    lab.plain.run("INSERT INTO queues VALUES (1), (2)")
    first, second = lab.session(), lab.session()
    for session in (first, second):
        session.run("BEGIN")
        assert session.ids("SELECT id FROM queues ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED") == [1]
        assert session.run("SHOW WARNINGS") == []
        session.run("COMMIT")


def test_statement_binlog(lab: Lab) -> None:
    """With the binlog in statements, READ COMMITTED allows no change at all; at REPEATABLE READ the claim is let through."""
    if lab.plain.run("SELECT @@log_bin") != [(1,)]:
        pytest.skip("this server writes no binlog")
    session = lab.session()
    for level, refused in (("READ COMMITTED", 1665), ("REPEATABLE READ", None)):
        session.run(f"SET SESSION binlog_format = 'STATEMENT'; SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        assert session.error(lab.claim(1)) == refused
        assert session.error("UPDATE jobs SET note = 'x' WHERE id = 1") == refused


def test_handler_counters_show_nothing(lab: Lab) -> None:
    """The session's counters of rows read are the same whether nine rows were skipped or none."""
    holder, other = lab.session(), lab.session()

    def counted() -> int:
        before, after = (
            other.run("SHOW SESSION STATUS LIKE 'Handler_read_next'")[0][1]
            for _ in (other.run("FLUSH STATUS"), other.run(lab.claim(1)))
        )
        return int(after) - int(before)

    free = counted()
    holder.run("BEGIN")
    holder.run(lab.claim(9))
    assert counted() == free


def test_no_timeout_at_all(lab: Lab) -> None:
    """On MariaDB innodb_lock_wait_timeout = 0 makes SKIP LOCKED fail with 1180 where a row is locked. MySQL's least is 1."""
    holder, other = lab.session(), lab.session()
    other.run("SET sql_mode = ''; SET innodb_lock_wait_timeout = 0")
    for session in (holder, other):
        session.run("BEGIN")
    holder.run(lab.claim(3))
    assert other.error(lab.claim(3)) == (1180 if lab.mariadb else None)
