"""The ledger example: orders that are carried out once, and a check that would see it if they were not."""

from __future__ import annotations

import signal

import pytest

from conftest import wait_for
from examples.harness import Example

ON = pytest.mark.parametrize("example", [("postgres", "postgresql+psycopg")], indirect=True)

#: A kill in the transaction of the first run, when all is written but not committed.
DYING = """
import os, signal, ledger
from sqlalchemy import event

@event.listens_for(ledger.engine, "commit")
def die(connection):
    os.kill(os.getpid(), signal.SIGKILL)

ledger.queue.worker(lease=1).run()
"""


@ON
def test_an_order_is_carried_out_once(example: Example) -> None:
    """Killed with -9 before its commit, the worker leaves nothing behind, and the next one moves the money."""
    example.run("ledger.py", "open")
    assert example.run("ledger.py", "order", "1", "2", "5000") == "job 1\n"
    killed = example.start("-c", DYING)
    assert killed.process.wait(20) == -signal.SIGKILL
    assert example.run("ledger.py", "check") == "nothing is missing, nothing is there twice; 1 to be carried out yet\n"
    example.worker("ledger:queue", "--lease", "1")
    wait_for(lambda: example.queue.job(1).finished_at, what="the transfer")
    assert (example.queue.job(1).result, example.queue.job(1).claims) == (5000, 2)
    assert example.run("ledger.py", "check") == "nothing is missing, nothing is there twice; 0 to be carried out yet\n"

    twice = "INSERT INTO entries (job, claims, account, cents) SELECT job, claims, account, cents FROM entries"
    change = f"import ledger, sqlalchemy as s; c = ledger.engine.connect(); c.execute(s.text('{twice}')); c.commit()"
    example.run("-c", f"{change}; raise SystemExit(ledger.main(['check']))", code=1)  # it would have seen it
