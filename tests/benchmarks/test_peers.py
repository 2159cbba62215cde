"""The comparison with raw SQL still runs, and accounts for every job. Peers are not installed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from databases import VARIABLES

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
SERVERS = [os.environ[VARIABLES[name]] for name in ("postgres", "mysql", "mariadb") if os.environ.get(VARIABLES[name])]


def peers(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with little to do, on the servers of the tests."""
    little = ["--jobs", "200", "--singles", "40", "--samples", "10", "--seconds", "1", "--pairs", "1"]
    given = [argument for url in SERVERS for argument in ("--url", url)]
    command = [sys.executable, str(PEERS), *arguments, *little, *given]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_dibs_beside_raw_sql() -> None:
    """On each database that there is both drain all jobs, and the figures come out as JSON."""
    kinds = ["sqlite", *(name for name in ("postgres", "mysql", "mariadb") if os.environ.get(VARIABLES[name]))]
    asked = [argument for kind in kinds for argument in ("--kind", kind)]
    done = peers("raw", "async", "transaction", "bulk", "--only", "raw SQL", "--json", *asked)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    measured = [row["measure"] for row in rows]
    assert measured.count("raw") == len(kinds)
    if "postgres" in kinds:
        assert {"transaction", "bulk"} <= set(measured)
    for row in rows:
        ((ours, theirs),) = row["pairs"]
        assert ours > 0
        assert theirs > 0
        assert row["ratio"]["median"] == pytest.approx(ours / theirs)


def test_a_table_for_people() -> None:
    """Without --json there is a table, with the ratio."""
    done = peers("raw", "--kind", "sqlite")
    assert done.returncode == 0, done.stderr
    assert "drain, beside raw SQL: jobs/s, more is better" in done.stdout
    assert "SQLite, synchronous=full" in done.stdout


def test_an_unknown_name_says_which_there_are() -> None:
    """A wrong name costs no measuring."""
    done = peers("drain", "--only", "sidekiq")
    assert done.returncode == 2
    assert "no such peer: sidekiq (there are graphile-worker, pg-boss" in done.stderr
