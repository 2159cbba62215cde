"""The Flask example: a real server on MySQL, a real worker, and an amount that stays a Decimal."""

from __future__ import annotations

import pytest

from conftest import wait_for
from dibs import State
from examples.harness import Example

ON = pytest.mark.parametrize("example", [("mysql", "mysql+pymysql")], indirect=True)


@ON
def test_an_order_and_its_job_are_one(example: Example) -> None:
    """Committed, the order is charged for by the worker; refused, there is neither an order nor a job."""
    example.run("-m", "flask", "--app", "flask_shop", "create-tables")
    ask = example.serve("-m", "flask", "--app", "flask_shop", "run", "--port")
    example.worker("flask_shop:queue")
    assert ask("/orders", {"item": "teapot", "total": "19.90"}) == (201, {"order": 1, "job": 1})
    wait_for(lambda: ask("/orders/1")[1]["paid"] != "0.00", what="the payment")
    assert ask("/orders/1") == (200, {"item": "teapot", "total": "19.90", "paid": "19.90"})
    assert ask("/orders", {"item": "palace", "total": "99999"})[0] == 422
    (job,) = example.queue.jobs()
    assert (job.status, job.payload, job.result) == (State.DONE, {"order_id": 1, "amount": "19.90"}, "19.90")


@ON
def test_outside_of_a_request(example: Example) -> None:
    """In a script, which has no context of the application and so no session, an enqueue is dibs' own."""
    example.run("-c", "import flask_shop; flask_shop.charge.enqueue(1, '19.90')")
    assert [job.payload for job in example.queue.jobs()] == [{"order_id": 1, "amount": "19.90"}]
