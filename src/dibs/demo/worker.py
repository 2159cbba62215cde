"""One worker process of the demo: an ordinary worker that works on the demo's queue alone.

Its orders come on stdin, so that a password in the URL is in no list of processes. It stops when the demo does,
whatever ended the demo.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from dibs.app import Dibs
from dibs.cli.logs import log_to_stderr
from dibs.cli.secrets import hide
from dibs.demo.run_log import RunLog
from dibs.demo.tasks import register
from dibs.worker.supervisor import follow

#: Seconds in which running jobs may end when the demo is no more.
GRACE = 5.0


class Orders(msgspec.Struct):
    """What a worker process of the demo is told at its start."""

    url: str
    queue: str
    number: int
    concurrency: int
    lease: float
    pause: float
    unfinished: str
    runs: str


def main() -> None:
    """Work until the demo has no more use for this process."""
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    hide(orders.url)
    log_to_stderr(None)
    app = Dibs(orders.url)
    register(
        app,
        queue=orders.queue,
        unfinished=Path(orders.unfinished),
        runs=RunLog(Path(orders.runs), orders.number),
        pause=orders.pause,
    )
    worker = app.worker(queues=[orders.queue], concurrency=orders.concurrency, lease=orders.lease, grace=GRACE)
    follow(worker.stop)
    worker.run(signals=True)
