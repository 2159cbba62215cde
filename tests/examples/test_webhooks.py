"""The sender of webhooks, against a real HTTP server that is busy, gone, or out of order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from conftest import wait_for
from dibs import State
from examples.harness import Example

ON = pytest.mark.parametrize("example", [("mariadb", "mariadb+pymysql")], indirect=True)

WAIT = 1.0


class Receiver(ThreadingHTTPServer):
    """Answers by path: `/ok` takes all, `/busy` and `/busy-until` ask once to wait, `/gone` is gone."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, int, float, str, Any]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def at(self, path: str) -> list[tuple[str, int, float, str, Any]]:
        return [got for got in self.got if got[0] == path]


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first = not self.server.at(self.path)
        status = 410 if self.path == "/gone" else 429 if first and self.path.startswith("/busy") else 204
        self.server.got.append((self.path, status, time.monotonic(), self.headers["Idempotency-Key"], body))
        self.send_response(status)
        if status == 429:
            until = datetime.now(UTC) + timedelta(seconds=WAIT + 1)  # a header's date has no fractions of a second
            self.send_header("Retry-After", format_datetime(until, True) if "until" in self.path else f"{WAIT:.0f}")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


@ON
def test_deliveries(example: Example, receiver: Receiver) -> None:
    """429 is waited out as long as it says, and counts no attempt; 410 ends the job; what is sent says which it is."""
    paths = ["/ok", "/busy", "/busy-until", "/gone"]
    example.run("webhooks.py", "subscribe", *map(receiver.url, paths))
    assert example.run("webhooks.py", "pay") == "1\n"
    assert example.run("webhooks.py", "ship", "1") == "4 deliveries\n"
    example.worker("webhooks:queue")
    wait_for(lambda: all(job.status in (State.DONE, State.FAILED) for job in example.queue.jobs()), what="the end")

    jobs = {job.payload["url"]: job for job in example.queue.jobs()}
    ended = {path: (job.status, job.attempts, job.releases) for path in paths for job in [jobs[receiver.url(path)]]}
    assert ended == {
        "/ok": (State.DONE, 1, 0),
        "/busy": (State.DONE, 1, 1),
        "/busy-until": (State.DONE, 1, 1),
        "/gone": (State.FAILED, 1, 0),
    }
    assert (jobs[receiver.url("/gone")].error or "").endswith("Fail: the subscriber is gone for good")
    for path in ("/busy", "/busy-until"):
        first, second = receiver.at(path)
        assert (first[1], second[1]) == (429, 204)
        assert second[2] - first[2] >= WAIT - 0.1
        assert first[3] == second[3] == f"job-{jobs[receiver.url(path)].id}"
    assert receiver.at("/ok")[0][4] == {"order": 1, "status": "shipped"}


@ON
def test_a_rollback_leaves_no_job(example: Example, receiver: Receiver) -> None:
    """An order that can't be shipped is refused in the transaction that had enqueued the deliveries."""
    example.run("webhooks.py", "subscribe", receiver.url("/ok"))
    example.run("webhooks.py", "ship", "7", code=1)
    assert example.queue.jobs() == []
