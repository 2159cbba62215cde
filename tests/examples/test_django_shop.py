"""The Django example: a real server, `manage.py dibs worker`, and Django's own interface for tasks."""

from __future__ import annotations

import hashlib

import pytest

from conftest import wait_for
from dibs import State
from examples.harness import Example

ON = pytest.mark.parametrize(
    "example", [("postgres", "postgresql"), ("mysql", "mysql")], indirect=True, ids=["postgres", "mysql"]
)


@ON
def test_an_order_and_its_jobs_are_one(example: Example) -> None:
    """Committed, the worker runs both jobs, one in a process; refused, there is neither an order nor a job."""
    example.home /= "django_shop"
    example.run("manage.py", "migrate")
    ask = example.serve("manage.py", "runserver", "--noreload")
    worker = example.start("manage.py", "dibs", "worker")
    assert ask("/orders/", {"item": "teapot", "total": "19.90"}) == (201, {"order": 1, "receipt": "1"})
    wait_for(lambda: {job.status for job in example.queue.jobs()} == {State.DONE}, what="both jobs")
    label = hashlib.pbkdf2_hmac("sha256", b"teapot", b"label", 200_000).hex()
    assert ask("/orders/1/") == (200, {"item": "teapot", "receipt": "teapot: 19.90", "label": label})
    assert ask("/orders/", {"item": "palace", "total": "99999"})[0] == 422
    assert ask("/orders/2/")[0] == 404
    assert len(example.queue.jobs()) == 2
    assert worker.stop() == 0, worker.log()


@ON
def test_its_own_tests(example: Example) -> None:
    """The shop's tests, with Django's test client, hold on a test database of Django's."""
    example.home /= "django_shop"
    example.run("manage.py", "test", "--noinput")
