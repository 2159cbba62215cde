"""One producer process of a run: enqueues in transactions of its own and without, rolls some back, and writes down
what it was told of each.

    DATABASE_URL=… python -m faults.producer '{"book": "…", "seed": 7, "first": 1000000, "rate": 10}'

What it writes: `asked` before a request, then one of `got`, with the job's id (a bulk: one for each job), `rolled back`,
`refused` (an error that says that nothing was done) and `unknown` (one that says that it may have been).
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import ledger
import msgspec
from sqlalchemy.exc import DBAPIError

from dibs import DatabaseError, OutcomeUnknown
from dibs.meanings import is_of_a_driver
from dibs.tasks import Call
from faults.book import Book
from faults.orders import ProducerOrders
from faults.tasks import Tasks

#: Numbers of a bulk's jobs follow that of the request.
BULK = 5

#: Seconds to rest after an error.
REST = 0.3


class Producer:
    """Makes requests of every kind, chosen by dice."""

    def __init__(self, orders: ProducerOrders) -> None:
        self.book = Book(Path(orders.book))
        self.dice = random.Random(f"{orders.seed} {orders.first}")
        self.number = orders.first
        self.tasks = Tasks(ledger.queue)
        self.repeat: list[int] = []  # numbers of keyed requests that may be made again
        kinds = {self.commit: 30, self.roll_back: 12, self.own: 20, self.keyed: 12, self.again: 8, self.bulk: 6}
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def step(self) -> None:
        """Make one request; errors that the database may give are written down, all others are raised."""
        make = self.dice.choices(self._kinds, self._weights)[0]
        self.number += 2 * BULK
        make(self.number)

    # -- in a transaction of ours ----------------------------------------------------------------------

    def commit(self, number: int) -> None:
        self._transaction(number, commit=True)

    def roll_back(self, number: int) -> None:
        self._transaction(number, commit=False)

    def _transaction(self, number: int, *, commit: bool) -> None:
        source, target = self.dice.sample(range(1, ledger.ACCOUNTS + 1), 2)
        self.book.write("asked", number=number, detail="transaction")
        committing = False
        job = 0
        try:
            with ledger.engine.connect() as connection:
                transaction = connection.begin()
                job = ledger.order(connection, source, target, cents=number)
                if commit:
                    committing = True
                    transaction.commit()
                else:
                    transaction.rollback()
        except Exception as error:
            if not isinstance(error, DBAPIError | DatabaseError) and not is_of_a_driver(error):
                raise
            self._failed("unknown" if committing else "rolled back", number, error)
        else:
            self.book.write("got" if commit else "rolled back", number=number, job=job)

    # -- over connections of dibs' own -----------------------------------------------------------------

    def own(self, number: int) -> None:
        self._enqueue(number, lambda: [ledger.queue.enqueue_call(self.some_call(number)).id])

    def keyed(self, number: int) -> None:
        self.repeat.append(number)
        self._keyed(number)

    def again(self, number: int) -> None:
        """Repeat a request that was made before, as a client does that has had no answer."""
        self._keyed(self.dice.choice(self.repeat) if self.repeat else number)

    def _keyed(self, number: int) -> None:
        key = f"request {number}"
        self._enqueue(number, lambda: [self.tasks.note.using(key=key).enqueue(number).id], keyed=True)

    def bulk(self, number: int) -> None:
        calls = [self.some_call(number + place) for place in range(BULK)]
        self._enqueue(number, lambda: [job.id for job in ledger.queue.enqueue_many(calls)], kind="bulk")

    def _enqueue(
        self, number: int, enqueue: Callable[[], list[int]], *, keyed: bool = False, kind: str = "single"
    ) -> None:
        self.book.write("asked", number=number, detail="keyed" if keyed else kind)
        try:
            for place, job in enumerate(enqueue()):
                self.book.write("got", number=number + place, job=job)
        except OutcomeUnknown as error:
            self._failed("unknown", number, error)
        except DatabaseError as error:
            # With a key it was asked again and again: one of the tries may have come through.
            self._failed("unknown" if keyed else "refused", number, error)

    def some_call(self, number: int) -> Call[int] | Call[None]:
        dice = self.dice
        match dice.choices(("note", "nap", "anap", "long", "stumble", "fail"), (40, 20, 20, 6, 10, 4))[0]:
            case "nap":
                return self.tasks.nap.call(number, round(dice.uniform(0.01, 0.5), 3))
            case "anap":
                return self.tasks.anap.call(number, round(dice.uniform(0.01, 0.5), 3))
            case "long":  # longer than a lease
                task = dice.choice([self.tasks.nap, self.tasks.anap])
                return task.call(number, round(dice.uniform(3.0, 6.0), 3))
            case "stumble":
                return self.tasks.stumble.call(number, dice.randint(1, 3))
            case "fail":
                return self.tasks.fail.call(number)
            case _:
                return self.tasks.note.call(number)

    def _failed(self, event: str, number: int, error: Exception) -> None:
        self.book.write(event, number=number, detail=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
        time.sleep(REST)


def main(argument: str) -> None:
    """Produce until SIGTERM."""
    orders = msgspec.json.decode(argument, type=ProducerOrders)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    producer = Producer(orders)
    producer.book.write("producer")
    while not stop.wait(producer.dice.expovariate(orders.rate)):
        producer.step()


if __name__ == "__main__":
    main(sys.argv[1])
