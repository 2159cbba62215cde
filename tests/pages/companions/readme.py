"""The shop of the README: its engine, its orders and accounts, and the task that exports an order."""

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, select, text

from dibs import Dibs

engine = create_engine("sqlite:///dibs.db")
metadata = MetaData()
orders = Table("orders", metadata, Column("id", Integer, primary_key=True), Column("total", Integer))
accounts = Table("accounts", metadata, Column("id", Integer, primary_key=True), Column("cents", Integer))
metadata.create_all(engine)
with engine.begin() as connection:
    connection.execute(accounts.insert(), [{"id": 1, "cents": 500}, {"id": 2, "cents": 0}])
debit = text("UPDATE accounts SET cents = cents - :cents WHERE id = :account")
credit = text("UPDATE accounts SET cents = cents + :cents WHERE id = :account")

shop = Dibs("sqlite:///dibs.db")
shop.migrate()


@shop.task(queue="exports")
def export_order(order_id: int) -> int:
    return order_id


def after():
    """The order and its job were committed together, and the transfer happens once with its job."""
    (order,) = shop.jobs(queue="exports")
    assert (order.task_key, order.payload, order.status) == ("order-7412", {"order_id": 7412}, "ready")
    transfer = app.tasks["page.transfer"].enqueue(1, 2, 200)  # noqa: F821
    app.worker(burst=True, queues=["ledger"]).run()  # noqa: F821
    transfer.join(timeout=5)
    with engine.begin() as connection:
        assert connection.execute(select(accounts.c.cents).order_by(accounts.c.id)).scalars().all() == [300, 200]
