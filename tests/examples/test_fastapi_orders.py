"""The FastAPI example: a real server, a real worker, and an order that takes its job along."""

from __future__ import annotations

import pytest

from conftest import wait_for
from dibs import State
from examples.harness import Example

DRIVERS = ["postgresql+asyncpg", "postgresql+psycopg"]
ON = pytest.mark.parametrize("example", [("postgres", driver) for driver in DRIVERS], indirect=True, ids=DRIVERS)


@ON
def test_an_order_and_its_job_are_one(example: Example) -> None:
    """Committed, the order is exported by the worker; refused, there is neither an order nor a job."""
    ask = example.serve("-m", "uvicorn", "fastapi_orders:api", "--port")
    example.worker("fastapi_orders:queue")
    assert ask("/orders", {"item": "teapot", "total": "19.90"}) == (201, {"order": 1, "job": 1})
    wait_for(lambda: ask("/jobs/1")[1]["status"] == "done", what="the export")
    assert (example.folder / "order-1.csv").read_text() == "1,teapot,19.90\n"
    assert ask("/jobs/1") == (200, {"status": "done", "result": str(example.folder / "order-1.csv")})
    assert ask("/orders", {"item": "palace", "total": "99999"})[0] == 402
    assert ask("/jobs/2")[0] == 404
    assert [(job.id, job.status) for job in example.queue.jobs()] == [(1, State.DONE)]
    assert example.server is not None
    example.server.stop()
    assert "Application shutdown complete" in example.server.log()
