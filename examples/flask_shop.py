"""A Flask shop on MySQL: an order and the job that charges for it are one transaction, and a charge happens once.

pip install flask flask-sqlalchemy "dibs[mysql]"
export DATABASE_URL=mysql+pymysql://me@localhost/shop
dibs migrate
flask --app flask_shop create-tables
flask --app flask_shop run              # in one terminal
dibs worker flask_shop:queue            # in another

curl localhost:5000/orders --json '{"item": "teapot", "total": "19.90"}'    # {"job": 1, "order": 1}
curl localhost:5000/orders/1                                                # paid: 19.90
curl localhost:5000/orders --json '{"item": "palace", "total": "99999"}'    # 422: no order, and no job
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from flask import Flask, abort, request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Numeric, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dibs import CurrentJob, Dibs, current_job

CREDIT = Decimal(10_000)


class Base(DeclarativeBase):
    pass


app = Flask(__name__)
app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["DATABASE_URL"]
db = SQLAlchemy(app, model_class=Base)
queue = Dibs(os.environ["DATABASE_URL"], connection=lambda: db.session)


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(String(200))
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2))
    paid: Mapped[Decimal] = mapped_column(Numeric(10, 2), default=Decimal(0))


# -- the job ---------------------------------------------------------------------------------------


@queue.around
def in_app_context(job: CurrentJob) -> Iterator[None]:
    """Give each run a context of the application, and with it a session of its own."""
    with app.app_context():
        yield


@queue.task(queue="payments")
def charge(order_id: int, amount: Decimal) -> Decimal:
    """Charge for an order, exactly once: the job is settled in the transaction that writes the payment."""
    current_job().finish(amount, connection=db.session)
    order = db.session.get_one(Order, order_id)
    order.paid += amount
    db.session.commit()
    return amount


# -- the web application ---------------------------------------------------------------------------


@app.cli.command("create-tables")
def create_tables() -> None:
    db.create_all()


@app.post("/orders")
def create_order() -> tuple[dict[str, int], int]:
    order = Order(item=request.json["item"], total=Decimal(request.json["total"]))
    db.session.add(order)
    db.session.flush()  # gives it its id
    job = charge.enqueue(order.id, order.total)
    if order.total > CREDIT:
        abort(422, "that is more than your credit")  # nothing was committed, so there is no order, and no job
    db.session.commit()
    return {"order": order.id, "job": job.id}, 201


@app.get("/orders/<int:order_id>")
def show_order(order_id: int) -> dict[str, Any]:
    order = db.get_or_404(Order, order_id)
    return {"item": order.item, "total": str(order.total), "paid": str(order.paid)}
