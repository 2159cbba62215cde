"""The long haul and the late commits still run, and account for every job. What they measure here means nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from databases import VARIABLES

HEALTH = Path(__file__).parents[2] / "benchmarks" / "health"
SERVERS = [name for name in ("postgres", "mysql", "mariadb") if os.environ.get(VARIABLES[name])]
LITTLE = ["--minutes", "0.02", "--warm", "0.3", "--slice", "0.6", "--rate", "200", "--jobs", "1500"]
LITTLE += ["--late-seconds", "0.5", "--dead", "500"]


def health(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with little to do, on the servers of the tests."""
    given = [argument for name in SERVERS for argument in ("--url", os.environ[VARIABLES[name]])]
    command = [sys.executable, str(HEALTH), *arguments, *LITTLE, *given]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_the_long_haul(tmp_path: Path) -> None:
    """On each database that there is all jobs are run under a held snapshot, and each slice has its figures."""
    kinds = ["sqlite", *SERVERS]
    drawn = tmp_path / "haul.svg"
    draw = ["--plot", str(drawn)] if importlib.util.find_spec("matplotlib") else []
    asked = [argument for kind in kinds for argument in ("--kind", kind)]
    done = health("haul", "--snapshot", "held", "--json", *draw, *asked)
    assert done.returncode == 0, done.stderr
    hauls = json.loads(done.stdout)["haul"]
    assert len(hauls) == len(kinds)
    for haul in hauls:
        phases = [piece["phase"] for piece in haul["slices"]]
        assert phases == sorted(phases, key=["steady", "flood", "again"].index)
        assert set(phases) == {"steady", "flood", "again"}
        claims = [piece["ops"]["all claims"] for piece in haul["slices"]]
        assert sum(piece["rows"] for piece in claims) > 500
        assert all(piece["p50"] <= piece["p99"] for piece in claims if piece["count"])
        first, last = claims[0]["p99"], claims[-1]["p99"]
        ratio = pytest.approx(last / first, abs=0.01) if first and last else None
        assert haul["last_to_first"]["all claims"] == ratio
    assert not draw or drawn.stat().st_size > 1_000


@pytest.mark.skipif("postgres" not in SERVERS, reason="no PostgreSQL")
def test_late_commits() -> None:
    """Nothing is left behind the cursor, with a snapshot or without; the table says how long the jobs waited."""
    done = health("late")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith(("  with the cursor", "  without a cursor"))]
    assert len(rows) == 5
    assert all(row.endswith(" 0") for row in rows), done.stdout


def test_a_haul_on_sqlite_for_people() -> None:
    """Without --json there is a table, slice by slice, and at its end the last one beside the first."""
    done = health("haul", "--kind", "sqlite", "--snapshot", "none")
    assert done.returncode == 0, done.stderr
    assert "SQLite, synchronous=full, snapshot not held: p50 / p99 in ms" in done.stdout
    assert "p99 in the last slice to the first, at the same rate: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hauls"], "no such measure: hauls (there are haul, late)"),
        (["--url", "oracle://x/y"], "no such kind of server: oracle"),
        (["--plot", "haul.txt"], "end its name in .svg, .png or .pdf"),
    ],
)
def test_a_wrong_word_is_refused(arguments: list[str], said: str) -> None:
    """Before anything is started."""
    done = health(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
