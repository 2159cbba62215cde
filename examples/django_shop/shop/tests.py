"""Tests of the shop, for `python manage.py test`. What a TestCase enqueues is rolled back with it."""

from __future__ import annotations

from django.test import TestCase

from dibs.contrib.django.models import Job
from shop.models import Order
from shop.tasks import send_receipt


class Ordering(TestCase):
    def order(self, total: str) -> int:
        return self.client.post("/orders/", {"item": "teapot", "total": total}, "application/json").status_code

    def test_an_order_has_jobs(self) -> None:
        self.assertEqual(self.order("19.90"), 201)
        order = Order.objects.get()
        jobs = {job.task: job.payload for job in Job.objects.all()}
        self.assertEqual(
            jobs,
            {
                "shop.tasks.send_receipt": {"args": [order.pk], "kwargs": {}},
                "shop.tasks.draw_label": {"order_id": order.pk},
            },
        )

    def test_an_order_that_is_refused_has_none(self) -> None:
        self.assertEqual(self.order("99999"), 422)
        self.assertFalse(Order.objects.exists() or Job.objects.exists())

    def test_the_receipt(self) -> None:
        order = Order.objects.create(item="teapot", total="19.90")
        self.assertEqual(send_receipt.call(order.pk), "teapot: 19.90")
