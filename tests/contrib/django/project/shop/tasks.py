"""The tasks of the shop: some of dibs' own, some of the framework's."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dibs.contrib.django import app
from dibs.contrib.django.standard import PACKAGE
from dibs.secrets import Secret
from shop.models import Note, Order

task: Any = import_module(PACKAGE).task  # as `from django.tasks import task`, wherever that is


@app.task(queue="mail")
def send_receipt(order_id: int) -> str:
    Note.objects.create(text=f"receipt {order_id}")
    return f"sent {order_id}"


@app.task
async def count_orders() -> int:
    return await Order.objects.acount()


@app.task(runs_in="process")
def count_in_process() -> int:
    send_receipt.enqueue(0)
    return Order.objects.count()


@app.task(runs_in="process")
async def acount_in_process() -> int:
    return await Order.objects.acount()


@app.task(max_attempts=1)
def decline(card: str) -> None:
    raise ValueError(f"no {card}")


@app.task
def log_in(user: str, password: Secret[str]) -> None: ...


@task
def add(a: int, b: int = 0) -> int:
    Note.objects.create(text=f"add {a} {b}")
    return a + b


@task
async def double(number: int) -> int:
    return number * 2


@task(takes_context=True, queue_name="mail")
def who(context: Any, *names: str) -> dict[str, Any]:
    result = context.task_result
    return {
        "id": result.id,
        "attempt": context.attempt,
        "args": result.args,
        "status": str(result.status),
        "names": names,
    }


class Declined(Exception):
    """The bank said no."""


@task(backend="once")
def charge(card: str) -> None:
    raise Declined(f"no {card}\nask the bank")


@task
def shaky() -> None:
    raise Declined("not today")


@task(backend="once")
def unstorable() -> object:
    return object()
