"""Defects put into a copy of the code, one at a time, to see whether the tests that are named for it notice.

    scripts/mutants                              # all, on SQLite and on throwaway servers, each three times
    scripts/mutants fence renewals --times 1
    scripts/mutants --apply                      # only whether each defect still fits the code

The tests run without the defect first, and have to pass. A defect that is not noticed is named, and so is one that does
not fit the code any more. Exit code 1 for all of these.
"""

from __future__ import annotations

import os
import re
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
    """A pattern in files of `src/dibs`, and what takes the place of all that it finds; in each it must find something."""

    files: str  # as `Path.glob` has them
    pattern: str
    new: str = ""


@dataclass(frozen=True)
class Mutant:
    """A defect: what is taken away, how, and the tests that must fail then, on each of these databases."""

    name: str
    what: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    databases: tuple[str, ...] = ALL


#: As each dialect writes it, in a comparison with the claim that a verdict or a renewal is about.
_CLAIM = r"AND (?:\w+\.)?claims = (?:CAST\(:claims AS bigint\)|[\w.:]+)\s+"
_OWNER = r"AND (?:\w+\.)?lease_owner = (?:CAST\(:worker AS text\)|[\w.:]+)"

MUTANTS = (
    Mutant(
        "fence",
        "a write about a running job no longer says whose claim it believes in",
        (
            Change("dialects/postgres.py", _CLAIM + _OWNER),
            Change("dialects/mysql.py", _CLAIM + _OWNER),
            Change("dialects/mysql.py", r"if row\[1\] == held\[row\[0\]\]", "if row[0] in held"),
            Change("dialects/mysql.py", r"(?<=status = 'running' )" + _OWNER),
            Change("dialects/sqlite.py", _CLAIM + _OWNER),
        ),
        ("tests/conformance/test_fence.py",),
    ),
    Mutant(
        "skip locked",
        "a claim waits for rows that another transaction holds",
        (
            Change("dialects/postgres.py", r"SKIP LOCKED(?=\s+\), ranked)"),
            Change("dialects/m*[lb].py", r"(?<=run_at, id LIMIT :limit {{for_update}}) {{skip_locked}}"),
        ),
        ("tests/conformance/test_claims_at_once.py", "-k", "three_workers or user_locks"),
        SERVERS,
    ),
    Mutant(
        "renewals",
        "nobody renews a lease",
        (Change("worker/leases.py", r"self\._renew\(self\._holdings\.all\(\)\)", "pass"),),
        ("tests/worker/test_leases.py",),
    ),
    Mutant(
        "expiry",
        "nobody takes a job back whose lease ran out",
        (Change("worker/upkeep.py", r'self\._expiry, (?=Chore\("prune")'),),
        ("tests/worker/test_leases.py",),
    ),
    Mutant(
        "unique keys",
        "two jobs of a task may have the same key",
        (
            Change(
                "migrations/*/0001_initial.sql",
                r"PRIMARY KEY \(task, task_key\)",
                "PRIMARY KEY (task, task_key, job_id)",
            ),
            Change("dialects/sqlite.py", r"(?<=WHERE )(?=NOT EXISTS \(\s+SELECT 1 FROM dibs_keys)", "TRUE OR "),
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
    control: bool  # do they pass without it?
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
            files = sorted((sources / "dibs").glob(change.files))
            for path in files:
                text, found = re.subn(change.pattern, change.new, path.read_text(encoding="utf-8"))
                if not found:
                    raise DoesNotFit(f"{mutant.name}: {path.name} has nothing like {change.pattern!r}")
                path.write_text(text, encoding="utf-8")
            if not files:
                raise DoesNotFit(f"{mutant.name}: there are no files {change.files}")
        yield sources


def try_out(mutant: Mutant, databases: Sequence[str], *, times: int, say: Callable[[str], None]) -> Iterator[Result]:
    """Yield a result for each of these databases that the defect is about."""
    with mutated(mutant) as sources:
        for database in databases:
            if database not in mutant.databases:
                continue
            began = time.monotonic()
            failed, why = _test(mutant, ROOT / "src", database)
            told = [_test(mutant, sources, database) for _ in range(times)] if not failed else [(False, why)]
            caught = sum(code for code, _ in told)
            seconds = round(time.monotonic() - began, 1)
            result = Result(mutant.name, database, caught, times, seconds, not failed, told[-1][1])
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
