"""Defects put into a copy of the code, one at a time, to see whether the tests that are named for it notice.

    scripts/mutants                              # all, on SQLite and on throwaway servers, each three times
    scripts/mutants fence renewals --times 1
    scripts/mutants --apply                      # only whether each defect still fits the code

A defect that is not noticed is named, and so is one that does not fit the code any more. Exit code 1 for both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]

#: Seconds that the tests of one defect may take on one database. What hangs is noticed, too.
WITHIN = 240.0

#: What pytest leaves with when tests failed. All else says nothing about the defect, such as that none were found.
TESTS_FAILED = 1

SERVERS = ("postgres", "mysql", "mariadb")
ALL = ("sqlite", *SERVERS)


@dataclass(frozen=True)
class Change:
    """A text in a file of `src/dibs`, what takes its place, and how often it is there."""

    file: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True)
class Mutant:
    """A defect: what is taken away, how, and the tests that must fail then, on each of these databases."""

    name: str
    what: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    databases: tuple[str, ...] = ALL


MIGRATIONS = [f"migrations/{name}/0001_initial.sql" for name in ("postgres", "mysql", "mariadb", "sqlite")]

MUTANTS = (
    Mutant(
        "fence",
        "a write about a running job no longer says whose claim it believes in",
        (
            Change("dialects/postgres.py", "AND j.claims = v.claims AND j.lease_owner = CAST(:worker AS text)", ""),
            Change(
                "dialects/postgres.py",
                "AND claims = CAST(:claims AS bigint)\n              AND lease_owner = CAST(:worker AS text) AND",
                "AND",
            ),
            Change("dialects/postgres.py", "AND j.claims = h.claims AND j.lease_owner = CAST(:worker AS text)", ""),
            Change("dialects/mysql.py", "if row[1] == held[row[0]]", "if row[0] in held"),
            Change("dialects/mysql.py", "AND j.claims = v.claims AND j.lease_owner = :worker", ""),
            Change("dialects/mysql.py", "AND j.claims = :claims AND j.lease_owner = :worker", ""),
            Change("dialects/mysql.py", "AND claims = :claims AND lease_owner = :worker", ""),
            Change(
                "dialects/mysql.py", "AND status = 'running' AND lease_owner = :worker", "AND status = 'running'", 3
            ),
            Change("dialects/sqlite.py", "AND claims = :claims AND lease_owner = :worker", "", 3),
            Change("dialects/sqlite.py", "AND status = 'running' AND lease_owner = :worker", "AND status = 'running'"),
        ),
        ("tests/conformance/test_fence.py",),
    ),
    Mutant(
        "skip locked",
        "a claim waits for rows that another transaction holds",
        (
            Change(
                "dialects/postgres.py",
                "FOR NO KEY UPDATE SKIP LOCKED\n        ), ranked",
                "FOR NO KEY UPDATE\n        ), ranked",
            ),
            Change(
                "dialects/mysql.py",
                "ORDER BY run_at, id LIMIT :limit {{for_update}} {{skip_locked}}",
                "ORDER BY run_at, id LIMIT :limit {{for_update}}",
            ),
            Change(
                "dialects/mariadb.py",
                "ORDER BY run_at, id LIMIT :limit {{for_update}} {{skip_locked}}",
                "ORDER BY run_at, id LIMIT :limit {{for_update}}",
            ),
        ),
        ("tests/conformance/test_claims_at_once.py", "-k", "three_workers or user_locks"),
        SERVERS,
    ),
    Mutant(
        "renewals",
        "nobody renews a lease",
        (Change("worker/leases.py", "self._renew(self._holdings.all())", "pass"),),
        ("tests/worker/test_leases.py",),
    ),
    Mutant(
        "expiry",
        "nobody takes a job back whose lease ran out",
        (Change("worker/upkeep.py", '            ("expire", self.tick, self._expire),\n', ""),),
        ("tests/worker/test_leases.py",),
    ),
    Mutant(
        "unique keys",
        "two jobs of a task may have the same key",
        (
            *(
                Change(file, "PRIMARY KEY (task, task_key)", "PRIMARY KEY (task, task_key, job_id)")
                for file in MIGRATIONS
            ),
            Change(
                "dialects/sqlite.py",
                "WHERE NOT EXISTS (\n            SELECT 1 FROM dibs_keys",
                "WHERE TRUE OR NOT EXISTS (\n            SELECT 1 FROM dibs_keys",
            ),
        ),
        ("tests/conformance/test_keys_at_once.py", "-k", "one_key_from or same_key_waits"),
    ),
)
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


class Result(msgspec.Struct):
    """What the tests of one defect did on one database, in so many tries."""

    mutant: str
    database: str
    caught: int
    tries: int
    seconds: float
    evidence: str  # the last thing that a test said


class DoesNotFit(Exception):
    """The code is not as the defect expects it."""


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Path]:
    """Yield the folder of a copy of the sources with the defect in it; raise DoesNotFit where it has no place."""
    with tempfile.TemporaryDirectory(prefix="dibs-mutant-") as temporary:
        sources = Path(temporary) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        for change in mutant.changes:
            path = sources / "dibs" / change.file
            text = path.read_text(encoding="utf-8")
            if (found := text.count(change.old)) != change.times:
                raise DoesNotFit(f"{mutant.name}: {change.file} has {change.old!r} {found} times, not {change.times}")
            path.write_text(text.replace(change.old, change.new), encoding="utf-8")
        yield sources


def try_out(mutant: Mutant, databases: Sequence[str], *, times: int, say: Callable[[str], None]) -> Iterator[Result]:
    """Yield a result for each of these databases that the defect is about."""
    with mutated(mutant) as sources:
        for database in databases:
            if database not in mutant.databases:
                continue
            began = time.monotonic()
            told = [_test(mutant, sources, database) for _ in range(times)]
            caught = sum(code for code, _ in told)
            seconds = round(time.monotonic() - began, 1)
            result = Result(mutant.name, database, caught, times, seconds, told[-1][1])
            say(f"{mutant.name} on {database}: {caught} of {times} ({seconds:g} s)")
            yield result


def _test(mutant: Mutant, sources: Path, database: str) -> tuple[bool, str]:
    """Run the tests on a database; return whether they noticed, and what they said last."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *mutant.tests]
    variables = {**os.environ, "PYTHONPATH": str(sources), "DIBS_TEST_ONLY": database}
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=WITHIN, check=False
        )
    except subprocess.TimeoutExpired:
        return True, f"the tests hung for {WITHIN:g} s"
    lines = [line for line in ended.stdout.strip().splitlines() if line.startswith("FAILED")]
    return ended.returncode == TESTS_FAILED, (lines or ended.stdout.strip().splitlines() or [ended.stderr[-300:]])[-1]
