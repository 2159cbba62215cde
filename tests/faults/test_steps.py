"""A process that dies or loses its connection at one request after the other: a few of them; scripts/steps does all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from databases import VARIABLES

FAULTS = Path(__file__).parents[2] / "scripts" / "faults"
# MariaDB over the same driver as MySQL: scripts/steps tries it.
NAMES = ["sqlite", *[name for name in ("postgres", "mysql") if os.environ.get(VARIABLES[name])]]


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps(name: str) -> None:
    """Every hundredth request, another one in each way: what was enqueued is done, once, and no lease of a living
    process ran out."""
    where = ["--database", name] if name == "sqlite" else ["--url", os.environ[VARIABLES[name]]]
    command = [sys.executable, str(FAULTS), "steps", *where, "--every", "100", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in (0, 1), done.stderr
    (report,) = json.loads(done.stdout)
    assert report["violations"] == []
    assert report["killed"] >= 3, "one before, during and after a request"
    assert report["cut_off"] >= 2
    assert report["counts"]["jobs"] == report["counts"]["done"]
