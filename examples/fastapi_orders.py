"""A FastAPI endpoint that writes an order and enqueues its export in one transaction.

pip install fastapi uvicorn "sqlalchemy[asyncio]" asyncpg "dibs[postgres]"
export DATABASE_URL=postgresql+asyncpg://me@localhost/shop
dibs migrate
uvicorn fastapi_orders:api              # in one terminal
dibs worker fastapi_orders:queue        # in another

curl localhost:8000/orders --json '{"item": "teapot", "total": "19.90"}'    # {"order": 1, "job": 1}
curl localhost:8000/jobs/1                                                  # done, and where the export is
curl localhost:8000/orders --json '{"item": "palace", "total": "99999"}'    # 402: no order, and no job
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import Numeric
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dibs import Dibs, JobNotFound

EXPORTS = Path(os.environ.get("EXPORTS", "exports"))
CREDIT = Decimal(10_000)

engine = create_async_engine(os.environ["DATABASE_URL"])
Session = async_sessionmaker(engine)
queue = Dibs(engine.url)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2))


# -- the job ---------------------------------------------------------------------------------------


@queue.task(queue="exports")
async def export_order(order_id: int) -> str:
    """Write an order to a file. Safe to repeat: a second run writes the same file again."""
    async with Session() as session:
        order = await session.get_one(Order, order_id)
        line = f"{order.id},{order.item},{order.total}\n"
    EXPORTS.mkdir(exist_ok=True)
    path = EXPORTS / f"order-{order_id}.csv"
    path.write_text(line)
    return str(path)


# -- the web application ---------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    queue.close()
    await engine.dispose()


async def transaction() -> AsyncIterator[AsyncSession]:
    """Give each request one transaction, which what it enqueues joins; an exception rolls both back."""
    async with Session.begin() as session, queue.transaction(session):
        yield session


# scope="function": committed before the answer is sent, so that nobody is told of an order that then is not there.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]

api = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    item: str
    total: Decimal = Field(gt=0, max_digits=10, decimal_places=2)


@api.post("/orders", status_code=201)
async def create_order(new: NewOrder, session: Transaction) -> dict[str, int]:
    order = Order(item=new.item, total=new.total)
    session.add(order)
    await session.flush()  # gives it its id
    job = await export_order.aenqueue(order.id)
    if new.total > CREDIT:
        raise HTTPException(402, "that is more than your credit")
    return {"order": order.id, "job": job.id}


@api.get("/jobs/{job_id}")
async def show_job(job_id: int) -> dict[str, Any]:
    try:
        job = await queue.ajob(job_id)
    except JobNotFound as error:
        raise HTTPException(404, str(error)) from None
    return {"status": job.status, "result": job.result}
