"""The comparison of shapes still runs, and accounts for every job. What it measures here means nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from databases import VARIABLES

SHAPES = Path(__file__).parents[2] / "benchmarks" / "shapes"
SERVER = os.environ.get(VARIABLES["postgres"])
LITTLE = ["--jobs", "200", "--few", "200", "--many", "1000", "--failed", "100", "--queues", "4", "--workers", "3"]


def shapes(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with little to do, on the server of the tests."""
    command = [sys.executable, str(SHAPES), *arguments, *LITTLE, *(["--url", SERVER] if SERVER else [])]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.skipif(not SERVER, reason="no PostgreSQL")
def test_all_shapes() -> None:
    """Each gives both figures of its pair, and what they are to each other."""
    done = shapes("--json", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    rows = {row["measure"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["async", "backlog", "crowd", "lanes", "workers", "watched", "memory"]
    for name, row in rows.items():
        ((ours, theirs),) = row["pairs"]
        assert min(ours, theirs) > 0
        compared = row["difference" if name == "memory" else "ratio"]["median"]
        assert compared == pytest.approx(ours - theirs if name == "memory" else ours / theirs)


@pytest.mark.skipif(not SERVER, reason="no PostgreSQL")
def test_a_table_for_people() -> None:
    """It says whether the median is what it has to be."""
    done = shapes("lanes", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    assert "many queues and priorities beside one lane: jobs/s; median (least–greatest) of 1 pairs" in done.stdout
    assert "at least 0.6: " in done.stdout


def test_an_unknown_name_says_which_there_are() -> None:
    """A wrong name costs no measuring."""
    done = shapes("line")
    assert done.returncode == 2
    assert "no such measure: line (there are async, backlog, crowd, lanes, workers, watched, memory)" in done.stderr
