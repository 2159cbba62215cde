"""The export that checkpoints: its worker is killed with -9 in the middle, and nothing is missing or there twice."""

from __future__ import annotations

import signal

import pytest

from conftest import wait_for
from dibs import State
from examples.harness import Example

ON = pytest.mark.parametrize("example", [("postgres", "postgresql")], indirect=True)


@ON
def test_it_goes_on_where_it_was(example: Example) -> None:
    """The next worker cuts off what had no checkpoint, and goes on from there."""
    example.run("nightly_export.py", "sample")
    day = example.run("-c", "import datetime; print(datetime.date.today())").strip()
    assert example.run("nightly_export.py", "request", day) == "job 1\n"
    assert example.run("nightly_export.py", "request", day) == "job 1\n"

    killed = example.worker("nightly_export:queue", "--lease", "1", ROWS_AT_A_TIME="20")
    wait_for(lambda: example.queue.job(1).checkpoint, what="a checkpoint")
    killed.stop(signal.SIGKILL)
    job = example.queue.job(1)
    assert (job.status, job.checkpoint["rows"] < 100_000) == (State.RUNNING, True)
    partial = example.folder / f"{day}.csv.partial"
    with partial.open("ab") as file:
        file.write(b"7,written,and no checkpo")  # as when it is killed between a write and its checkpoint

    example.worker("nightly_export:queue", "--lease", "1")
    wait_for(lambda: example.queue.job(1).status is State.DONE, what="the whole export")
    job = example.queue.job(1)
    assert (job.result, job.attempts, job.crashes, job.progress["done"]) == (100_000, 2, 1, 1)
    rows = [line.split(",") for line in (example.folder / f"{day}.csv").read_text().splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, 100_001))
    assert {len(row) for row in rows} == {3}
    assert not partial.exists()


@ON
def test_a_rollback_leaves_no_job(example: Example) -> None:
    """A day without orders is refused in the transaction that had enqueued its export."""
    example.run("nightly_export.py", "sample")
    assert "no orders of 1999-12-31" in example.run("nightly_export.py", "request", "1999-12-31", code=1)
    assert example.queue.jobs() == []
