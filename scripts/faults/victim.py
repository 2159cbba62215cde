"""A process that enqueues in every way and then works until all of its jobs are done, with one fault on its way."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import ledger
from sqlalchemy.exc import DBAPIError

from dibs import DatabaseError, OutcomeUnknown
from dibs.meanings import is_of_a_driver
from faults.book import Book
from faults.orders import LEASE, WITHIN, VictimOrders
from faults.strike import Fault, put_into
from faults.tasks import Tasks, write_down


class Victim:
    """Its requests have numbers from 100 × its tag on."""

    def __init__(self, orders: VictimOrders, book: Book, tasks: Tasks) -> None:
        self.book = book
        self.tasks = tasks
        self.queue = f"victim {orders.tag}"
        self.first = orders.tag * 100

    def enqueue(self) -> None:
        """Without a key, with one, many at once, in a transaction that commits, and in one that does not."""
        note, queue, first = self.tasks.note, self.queue, self.first
        self._ask(first, "single", lambda: [note.using(queue=queue).enqueue(first).id])
        key = f"victim {first}"
        self._ask(first + 10, "keyed", lambda: [note.using(queue=queue, key=key).enqueue(first + 10).id])
        bulk = [
            note.using(queue=queue, key=f"bulk {first}").call(first + 20),
            note.using(queue=queue).call(first + 21),
            self.tasks.nap.using(queue=queue).call(first + 22, 1.3),  # its lease is renewed meanwhile
            self.tasks.anap.using(queue=queue).call(first + 23, 0.01),
            self.tasks.stumble.using(queue=queue).call(first + 24, 1),
        ]
        self._ask(first + 20, "bulk", lambda: [job.id for job in ledger.queue.enqueue_many(bulk)])
        self._transaction(first + 30, commit=True)
        self._transaction(first + 40, commit=False)

    def _ask(self, number: int, kind: str, enqueue: Callable[[], list[int]]) -> None:
        self.book.write("asked", number=number, detail=kind)
        try:
            for place, job in enumerate(enqueue()):
                self.book.write("got", number=number + place, job=job)
        except OutcomeUnknown:
            self.book.write("unknown", number=number)

    def _transaction(self, number: int, *, commit: bool) -> None:
        self.book.write("asked", number=number, detail="transaction")
        committing = False
        try:
            with ledger.engine.connect() as connection:
                transaction = connection.begin()
                transfer = ledger.transfer.using(queue=self.queue, connection=connection)
                job = transfer.enqueue(1, 2, number)
                connection.execute(ledger.orders.insert().values(job=job.id, cents=number))
                committing = commit
                transaction.commit() if commit else transaction.rollback()
        except Exception as error:
            if not isinstance(error, DBAPIError | DatabaseError) and not is_of_a_driver(error):
                raise
            self.book.write("unknown" if committing else "rolled back", number=number, detail=type(error).__name__)
        else:
            self.book.write("got" if commit else "rolled back", number=number, job=job.id)

    def work(self) -> None:
        end = time.monotonic() + WITHIN
        while set(ledger.queue.counts().get(self.queue, {})) & {"ready", "running"}:
            ledger.queue.worker(queues=[self.queue], lease=LEASE, concurrency=3, burst=True).run()
            if time.monotonic() > end:
                raise TimeoutError(f"not done within {WITHIN:g} s")
            time.sleep(0.05)


def main(orders: VictimOrders) -> None:
    """Live, or die on the way."""
    log = Path(orders.book).parent / f"victim {orders.tag}.log"
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, filename=log)
    book = Book(Path(orders.book))
    fault = Fault(orders.at, orders.when, orders.how, url=os.environ["DATABASE_URL"], book=book)
    put_into(ledger.queue, ledger.engine, fault)
    write_down(ledger.queue, book)
    victim = Victim(orders, book, Tasks(ledger.queue))
    book.write("victim", number=orders.tag)
    victim.enqueue()
    victim.work()
    book.write("survived", number=orders.tag, job=fault.seen, detail="\n".join(sorted(fault.labels)))
