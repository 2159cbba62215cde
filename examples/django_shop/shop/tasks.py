"""The jobs of the shop: one by Django's own interface, one by dibs', which has more to say."""

from __future__ import annotations

import hashlib

from dibs.contrib.django import app
from shop.models import Order

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@task(queue_name="mail")
def send_receipt(order_id: int) -> str:
    """Write the receipt. Safe to repeat: a second run writes the same one."""
    order = Order.objects.get(pk=order_id)
    receipt = f"{order.item}: {order.total}"
    Order.objects.filter(pk=order_id).update(receipt=receipt)
    return receipt


@app.task(runs_in="process", timeout=60)
def draw_label(order_id: int) -> str:
    """Compute for a while, in a process of its own: the worker's other jobs go on, and it can be ended."""
    order = Order.objects.get(pk=order_id)
    label = hashlib.pbkdf2_hmac("sha256", order.item.encode(), b"label", 200_000).hex()
    Order.objects.filter(pk=order_id).update(label=label)
    return label
