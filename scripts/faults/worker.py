"""One worker process of a run: an ordinary worker of `examples/ledger.py` that knows a few tasks more.

DATABASE_URL=… python -m faults.worker '{"book": "…", "lease": 3, "grace": 3, "concurrency": 4}'
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ledger
import msgspec

from dibs import CurrentJob
from faults.book import Book
from faults.orders import WorkerOrders
from faults.tasks import Tasks, write_down

#: Seconds that a transfer takes at most before it begins: time for a blow between its claim and its transaction.
DAWDLE = 0.4


def dawdle(job: CurrentJob) -> Iterator[None]:
    if job.task == ledger.transfer.name:
        time.sleep(random.uniform(0.0, DAWDLE))
    yield


def main(argument: str) -> None:
    """Work until SIGTERM."""
    orders = msgspec.json.decode(argument, type=WorkerOrders)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    book = Book(Path(orders.book))
    write_down(ledger.queue, book)
    ledger.queue.around(dawdle)
    Tasks(ledger.queue)
    worker = ledger.queue.worker(lease=orders.lease, grace=orders.grace, concurrency=orders.concurrency)
    book.write("worker")
    worker.run(signals=True)


if __name__ == "__main__":
    main(sys.argv[1])
