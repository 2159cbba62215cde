"""Tells subscribers of what happens in a shop, by HTTP: patient with those who are busy, done with those who are gone.

pip install httpx sqlalchemy "dibs[mysql]"      # or dibs[postgres]
export DATABASE_URL=mysql+pymysql://me@localhost/shop    # or postgresql+psycopg://…, or sqlite:///shop.db
dibs migrate
python webhooks.py subscribe http://localhost:9000/hook
python webhooks.py pay                          # makes an order that is paid, and prints its number
python webhooks.py ship 1                       # enqueues a delivery for each subscriber
dibs worker webhooks:queue
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker

from dibs import Dibs, Fail, Release, current_job


@asynccontextmanager
async def lifespan(queue: Dibs) -> AsyncIterator[httpx.AsyncClient]:
    """Keep one client for all deliveries of a worker, and with it the connections to subscribers."""
    async with httpx.AsyncClient(timeout=10) as client:
        yield client


engine = create_engine(os.environ["DATABASE_URL"])
Session = scoped_session(sessionmaker(engine))
queue = Dibs(engine.url, connection=lambda: Session, lifespan=lifespan)


class Base(DeclarativeBase):
    pass


class Subscriber(Base):
    __tablename__ = "subscribers"

    url: Mapped[str] = mapped_column(String(500), primary_key=True)


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="paid")


@queue.task(queue="webhooks", timeout=30)
async def deliver(url: str, event: dict[str, Any]) -> int:
    """Post an event to a subscriber. Any other error than these is tried again, with growing pauses."""
    job = current_job()
    client: httpx.AsyncClient = job.state
    # A delivery may be repeated, so it says which one it is.
    response = await client.post(url, json=event, headers={"Idempotency-Key": f"job-{job.id}"})
    if response.status_code == 429:
        raise Release("the subscriber is busy", delay=seconds_until(response.headers.get("Retry-After", "")))
    if response.status_code == 410:
        raise Fail("the subscriber is gone for good")
    response.raise_for_status()
    return response.status_code


def seconds_until(retry_after: str) -> float:
    """Return how long to wait by this header: it has seconds, or a date. An hour at most, 30 s where it has neither."""
    try:
        seconds: float = int(retry_after)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return 30.0
    return min(max(seconds, 1.0), 3600.0)


def ship(order_id: int) -> int:
    """Mark an order as shipped and enqueue a delivery for each subscriber: both, or neither. Return how many."""
    with Session.begin():
        urls = Session.scalars(select(Subscriber.url)).all()
        jobs = queue.enqueue_many(deliver.call(url, {"order": order_id, "status": "shipped"}) for url in urls)
        order = Session.get_one(Order, order_id, with_for_update=True)  # raises if there is none
        if order.status != "paid":
            raise SystemExit(f"order {order_id} is {order.status}")
        order.status = "shipped"
    return len(jobs)


def add(*rows: Base) -> None:
    with Session.begin():
        Session.add_all(rows)


if __name__ == "__main__":
    Base.metadata.create_all(engine)
    match sys.argv[1:]:
        case ["subscribe", *urls]:
            add(*[Subscriber(url=url) for url in urls])
        case ["pay"]:
            order = Order()
            add(order)
            print(order.id)
        case ["ship", number]:
            print(f"{ship(int(number))} deliveries")
        case _:
            sys.exit("usage: webhooks.py subscribe URL… | webhooks.py pay | webhooks.py ship ORDER")
