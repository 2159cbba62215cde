"""The storm still rages in the order that its seed says, and finds nothing; and who judges it is not blind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faults.blows import NETWORK, PROCESSES, SERVER, Kind, plan
from faults.book import Entry
from faults.compare import Row, compare

from databases import VARIABLES

FAULTS = Path(__file__).parents[2] / "scripts" / "faults"
SERVERS = [name for name in ("postgres", "mysql", "mariadb") if os.environ.get(VARIABLES[name])]

#: Little of all, so that it is over in some seconds.
LITTLE = ["--minutes", "0.08", "--blows", "9", "--seed", "5", "--workers", "2", "--producers", "1", "--lease", "1.5"]


def faults(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    """Run `scripts/faults`."""
    command = [sys.executable, str(FAULTS), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.parametrize("name", ["sqlite", *SERVERS[:1]])
def test_a_short_storm(name: str) -> None:
    """Jobs are run, processes are killed and frozen, and nothing is violated."""
    where = ["--database", name] if name == "sqlite" else ["--url", os.environ[VARIABLES[name]]]
    done = faults("chaos", *where, *LITTLE, "--json")
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["violations"] == []
    assert sum(report["blows"].values()) == 9
    assert report["counts"]["done"] > 10
    assert report["counts"]["transfers"] > 0


def settings(**given: Any) -> Any:
    usual = {"number": 110, "minutes": 5.0, "workers": 4, "producers": 2, "lease": 3.0}
    return {**usual, "network": True, "server": True, "promote": True, **given}


def test_a_seed_is_an_order_of_blows() -> None:
    """The same seed makes the same blows; another one makes others."""
    blows = plan(7, **settings())
    assert blows == plan(7, **settings())
    assert [str(blow) for blow in blows] != [str(blow) for blow in plan(8, **settings())]
    assert [blow.at for blow in blows] == sorted(blow.at for blow in blows)
    assert len(blows) == 110


def test_every_kind_of_blow_comes() -> None:
    """One primary is replaced, in the middle; where there is no network only processes are struck."""
    for seed in range(20):
        kinds = [blow.kind for blow in plan(seed, **settings())]
        assert set(kinds) == {*PROCESSES, *NETWORK, *SERVER, Kind.PROMOTE}
        assert kinds.count(Kind.PROMOTE) == 1
        assert kinds[55] is Kind.PROMOTE
        alone = plan(seed, **settings(network=False, server=False, promote=False))
        assert {blow.kind for blow in alone} == set(PROCESSES)


# -- the judge -----------------------------------------------------------------------------------------------

DONE = Row(1, "faults.note", {"number": 10}, "done", 1, 1, 0, None, 1, None)
ENTRIES = [
    Entry("asked", 7, 1.0, number=10, detail="single"),
    Entry("got", 7, 1.1, number=10, job=1),
    Entry("start", 8, 2.0, job=1, claims=1),
    Entry("end", 8, 2.1, job=1, claims=1),
]


def found(rows: list[Row], entries: list[Entry], harms: dict[int, list[tuple[float, float, str]]] | None = None) -> str:
    """Return what the judge says, on one line."""
    return "; ".join(compare(rows, entries, harms=harms or {}, lease=1.0).violations)


def test_what_is_right_is_not_found() -> None:
    """A job that was enqueued, run and settled; and one that was taken from a worker that was killed."""
    assert found([DONE], ENTRIES) == ""
    again = [Entry("start", 9, 6.0, job=1, claims=2), Entry("end", 9, 6.1, job=1, claims=2)]
    rerun = [*ENTRIES[:3], *again]
    assert found([replace(DONE, claims=2, result=2, crashes=1)], rerun, {8: [(2.05, 1e9, "SIGKILL")]}) == ""


@pytest.mark.parametrize(
    ("rows", "entries", "said"),
    [
        ([], ENTRIES, "was answered with jobs [1], there are []"),
        ([], ENTRIES, "job 1 was run, and the queue does not have it"),
        ([DONE, replace(DONE, id=2)], [*ENTRIES, Entry("start", 8, 3.0, job=2, claims=1), Entry("end", 8, 3.1, job=2, claims=1)], "there are [1, 2]"),
        ([DONE], [*ENTRIES[2:], Entry("asked", 7, 1.0, number=10, detail="transaction"), Entry("rolled back", 7, 1.1, number=10)], "was rolled back, and there is job 1"),
        ([DONE], ENTRIES[2:], "nobody asked for 10"),
        ([replace(DONE, status="running")], ENTRIES, "is still running"),
        ([replace(DONE, status="failed", error="boom")], ENTRIES, "failed: ['boom']"),
        ([replace(DONE, status="cancelled")], ENTRIES, "nobody asked for that"),
        ([DONE], ENTRIES[:3], "its last run had no effect"),
        ([DONE], ENTRIES[:2], "at which it was never begun"),
        ([replace(DONE, claims=2)], [*ENTRIES, Entry("start", 8, 3.0, job=1, claims=2), Entry("end", 8, 3.1, job=1, claims=2)], "with the result of claim 1"),
        ([DONE], [*ENTRIES, Entry("start", 9, 3.0, job=1, claims=2)], "was begun at a later one"),
        ([DONE], [*ENTRIES, Entry("start", 9, 3.0, job=1, claims=1)], "begun twice under the same claim"),
        ([replace(DONE, claims=2, result=2)], [*ENTRIES[:3], Entry("start", 9, 6.0, job=1, claims=2), Entry("end", 9, 6.1, job=1, claims=2)], "to which nothing had been done, was still at it"),
        ([replace(DONE, claims=2, result=2)], [*ENTRIES, Entry("start", 9, 6.0, job=1, claims=2), Entry("end", 9, 6.1, job=1, claims=2)], "to which nothing had been done, had ended it"),
        ([DONE], [*ENTRIES, Entry("asked", 7, 1.0, number=10, detail="bulk")], "is there in part: 1 of 5"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(rows: list[Row], entries: list[Entry], said: str) -> None:
    """Each thing that must not be."""
    assert said in found(rows, entries)
