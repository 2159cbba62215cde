"""A job is part of the transaction that Django has open, and no other."""

from __future__ import annotations

from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from shop.models import Order
from shop.tasks import count_orders, send_receipt

from dibs.contrib.django import app
from dibs.contrib.django.models import Job
from dibs.contrib.django.testing import forget_jobs
from dibs.states import State


class Undo(Exception):
    """Rolls a block back."""


class InTransactions(TransactionTestCase):
    """With transactions that really commit."""

    def setUp(self) -> None:
        forget_jobs()

    def test_a_commit_leaves_one(self) -> None:
        """What is enqueued in atomic() is there after it, and not before for anybody else."""
        alone = app.new_store()
        self.assertEqual(alone.run(app.dialect.counts), {})
        with transaction.atomic():
            order = Order.objects.create()
            job = send_receipt.enqueue(order.pk)
            self.assertEqual(alone.run(app.dialect.counts), {})
        alone.close()
        self.assertEqual(app.job(job.id).payload, {"order_id": order.pk})

    def test_a_rollback_leaves_none(self) -> None:
        """What is enqueued in atomic() goes when that is rolled back, with the order."""
        with self.assertRaises(Undo), transaction.atomic():
            send_receipt.enqueue(Order.objects.create().pk)
            raise Undo
        self.assertEqual((Order.objects.count(), Job.objects.count()), (0, 0))

    def test_a_savepoint_leaves_none(self) -> None:
        """A block inside a block takes its jobs with it, and leaves those around it."""
        with transaction.atomic():
            kept = send_receipt.enqueue(1)
            with self.assertRaises(Undo), transaction.atomic():
                send_receipt.enqueue(2)
                raise Undo
        self.assertEqual([job.id for job in app.jobs()], [kept.id])

    def test_keys_inside_and_outside(self) -> None:
        """A key works in atomic() and outside; one that was rolled back is free again."""
        with self.assertRaises(Undo), transaction.atomic():
            self.assertTrue(send_receipt.using(key="7").enqueue(7).created)
            raise Undo
        with transaction.atomic():
            first = send_receipt.using(key="7").enqueue(7)
            again = send_receipt.using(key="7").enqueue(7)
        outside = send_receipt.using(key="7").enqueue(7)
        self.assertEqual([first.created, again.created, outside.created], [True, False, False])
        self.assertEqual({first.id, again.id, outside.id}, {first.id})

    def test_outside_it_commits_at_once(self) -> None:
        """Without a transaction the job is there at once, over a connection of dibs' own."""
        job = send_receipt.enqueue(1)
        alone = app.new_store()
        self.assertEqual(alone.run(app.dialect.counts), {"mail": {"ready": 1}})
        alone.close()
        self.assertEqual(app.job(job.id).task, "shop.tasks.send_receipt")

    def test_async_code(self) -> None:
        """aenqueue() and aenqueue_many() work in async code, where no transaction can be."""

        async def enqueue() -> int:
            job = await send_receipt.aenqueue(1)
            jobs = await app.aenqueue_many([count_orders.call(), count_orders.call()])
            return len({job.id, *[each.id for each in jobs]})

        self.assertEqual(async_to_sync(enqueue)(), 3)
        self.assertEqual(Job.objects.count(), 3)


class InTests(TestCase):
    """In the transaction of a TestCase, which is rolled back."""

    databases = ("default",)

    def test_what_it_enqueues_is_seen(self) -> None:
        """Django's ORM and the app's own questions see the jobs of the test, and no others."""
        job = send_receipt.using(key="a").enqueue(order_id=5)
        row = Job.objects.get()
        self.assertEqual((row.pk, row.task, row.payload), (job.id, "shop.tasks.send_receipt", {"order_id": 5}))
        self.assertEqual((row.queue, row.status, row.task_key), ("mail", "ready", "a"))
        self.assertEqual([each.id for each in app.jobs()], [job.id])
        self.assertEqual(app.counts(), {"mail": {"ready": 1}})

    def test_orders_take_effect(self) -> None:
        """cancel(), requeue(), pause() and resume() work on the jobs of the test."""
        job = send_receipt.enqueue(1)
        self.assertEqual(app.cancel(job.id, reason="no"), [job.id])
        self.assertEqual(app.job(job.id).status, State.CANCELLED)
        self.assertEqual(app.requeue([job.id]), [job.id])
        self.assertTrue(app.pause("mail"))
        self.assertTrue(app.resume("mail"))
        self.assertEqual(Job.objects.get().status, "ready")

    async def test_an_async_test(self) -> None:
        """Async code that a TestCase runs joins its transaction, too."""
        job = await send_receipt.aenqueue(1)
        self.assertEqual(await Job.objects.aget(), await Job.objects.aget(pk=job.id))

    def test_times(self) -> None:
        """Times are the moment that they are, in queries as well."""
        from django.conf import settings
        from django.utils import timezone

        before = timezone.now() - timezone.timedelta(seconds=60)
        send_receipt.enqueue(1)
        row = Job.objects.get(created_at__gt=before, created_at__lt=timezone.now() + timezone.timedelta(seconds=60))
        self.assertEqual(timezone.is_aware(row.created_at), settings.USE_TZ)
        self.assertLess(abs((timezone.now() - row.created_at).total_seconds()), 60)

    def test_the_function_is_a_function(self) -> None:
        """Called by hand a task runs here and now."""
        self.assertEqual(send_receipt(3), "sent 3")
