"""A worker runs the jobs of a project by the rules of the framework."""

from __future__ import annotations

import threading

from django.db import connection, connections
from django.test import TransactionTestCase
from shop.models import Note, Order
from shop.tasks import acount_in_process, count_in_process, count_orders, decline, send_receipt

from dibs.contrib.django import app
from dibs.contrib.django.testing import forget_jobs
from dibs.states import State


def run_what_is_due() -> None:
    app.worker(burst=True).run()


class Working(TransactionTestCase):
    """In a burst, in this process."""

    def setUp(self) -> None:
        forget_jobs()

    def test_tasks_run(self) -> None:
        """Sync and async tasks run with the ORM, and their results come back."""
        Order.objects.create()
        sent, counted, declined = send_receipt.enqueue(4), count_orders.enqueue(), decline.enqueue("visa")
        run_what_is_due()
        self.assertEqual((sent.join(1), counted.join(1)), ("sent 4", 1))
        self.assertEqual(Note.objects.get().text, "receipt 4")
        job = app.job(declined.id)
        self.assertEqual(job.status, State.FAILED)
        assert job.error is not None
        self.assertTrue(job.error.endswith("ValueError: no visa"), job.error)
        self.assertNotIn("dibs/contrib", job.error)

    def test_processes(self) -> None:
        """A task in a process of its own has the ORM too, and is where the worker is: in the test's database."""
        Order.objects.create()
        counted, acounted = count_in_process.enqueue(), acount_in_process.enqueue()
        run_what_is_due()
        self.assertEqual((counted.join(1), acounted.join(1)), (1, 1))
        self.assertEqual(Note.objects.get().text, "receipt 0")

    def test_connections_are_closed(self) -> None:
        """Without CONN_MAX_AGE the connection that a task opened is closed when it has ended."""
        opened: list[int] = []

        @app.task(name="opens")
        def opens() -> None:
            Note.objects.count()
            opened.append(id(connection.connection))

        @app.task(name="looks", max_attempts=1)
        def looks() -> bool:
            return any(each.connection is not None for each in connections.all(initialized_only=True))

        worker = app.worker(concurrency=1)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            opens.enqueue().join(20)
            self.assertIs(looks.enqueue().join(20), False)
        finally:
            worker.stop()
            thread.join()
            del app.tasks["opens"], app.tasks["looks"]
        self.assertEqual(len(opened), 1)
