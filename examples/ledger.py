"""A ledger: money that is moved exactly once, whatever happens to the worker or to the connection meanwhile.

    pip install sqlalchemy "dibs[all]"
    export DATABASE_URL=postgresql+psycopg://me@localhost/shop    # or mysql+pymysql://…, or sqlite:///ledger.db
    dibs migrate
    python ledger.py open               # makes the tables, and ten accounts with 1000.00 each
    python ledger.py order 1 2 5000     # 50.00 from account 1 to account 2
    dibs worker ledger:queue
    python ledger.py check              # every order that was committed is carried out once, or has yet to be

Kill the worker with -9 in the middle, end its sessions, pull the plug: `check` finds nothing missing and nothing twice.
`scripts/chaos` does all that to this very program.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, create_engine, func, select, text

from dibs import Backoff, Dibs, current_job

ACCOUNTS = 10
OPENING = 100_000  # cents

queue = Dibs(os.environ["DATABASE_URL"])
engine = create_engine(os.environ["DATABASE_URL"], pool_pre_ping=True)  # a pooled connection may have been lost

metadata = MetaData()
accounts = Table(
    "accounts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("cents", BigInteger, nullable=False),
)
orders = Table(
    "orders",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("job", BigInteger, nullable=False),
    Column("cents", BigInteger, nullable=False),
)
#: Nothing in it is unique: what happens twice is there twice. `claims` tells which run of the job wrote it.
entries = Table(
    "entries",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("job", BigInteger, nullable=False),
    Column("claims", Integer, nullable=False),
    Column("account", Integer, nullable=False),
    Column("cents", BigInteger, nullable=False),
)


@queue.task(queue="ledger", max_attempts=50, backoff=Backoff(first=0.2, factor=1.5, cap=5))
def transfer(source: int, target: int, cents: int) -> None:
    """Move money, exactly once: the job is settled in the transaction that moves it."""
    job = current_job()
    with engine.begin() as connection:
        job.finish(cents, connection=connection)  # first; raises LostClaim if the job is not ours any more
        changes = sorted(
            [(source, -cents), (target, cents)]
        )  # so that no two transfers wait for each other in a circle
        for account, change in changes:
            entry = {"job": job.id, "claims": job.claims, "account": account, "cents": change}
            connection.execute(entries.insert().values(entry))
            connection.execute(
                accounts.update().where(accounts.c.id == account).values(cents=accounts.c.cents + change)
            )


def order(connection: Connection, source: int, target: int, cents: int) -> int:
    """Write an order and its job into one transaction, which the caller commits or rolls back; return the job's id."""
    job = transfer.using(connection=connection).enqueue(source, target, cents)
    connection.execute(orders.insert().values(job=job.id, cents=cents))
    return job.id


def open_ledger() -> None:
    """Make the tables, and accounts with money in them."""
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(accounts.insert(), [{"id": number, "cents": OPENING} for number in range(1, ACCOUNTS + 1)])


def problems(connection: Connection) -> list[str]:
    """Compare orders, jobs, entries and balances with each other; return what does not fit."""
    found: list[str] = []
    jobs: dict[int, Any] = {
        row.id: row
        for row in connection.execute(text("SELECT id, status, claims FROM dibs_jobs WHERE task = 'ledger.transfer'"))
    }
    ordered = {row.job: row.cents for row in connection.execute(select(orders))}
    found += [f"the order of job {job} is there without its job" for job in sorted(ordered.keys() - jobs.keys())]
    found += [f"job {job} is there without its order" for job in sorted(jobs.keys() - ordered.keys())]
    written: dict[int, list[tuple[int, int]]] = {job: [] for job in jobs}
    for entry in connection.execute(select(entries)):
        written.setdefault(entry.job, []).append((entry.claims, entry.cents))
    for job, rows in sorted(written.items()):
        row = jobs.get(job)
        cents = ordered.get(job, 0)
        done = row is not None and row.status == "done"
        right = sorted([(row.claims, -cents), (row.claims, cents)]) if done and row else []
        if sorted(rows) != right:
            status = row.status if row is not None else "not there"
            found.append(f"job {job} is {status}, and its entries are (claims, cents): {sorted(rows)}")
    moved = select(entries.c.account, func.sum(entries.c.cents)).group_by(entries.c.account)
    changes: dict[int, int] = {account: int(cents) for account, cents in connection.execute(moved)}
    for account, cents in connection.execute(select(accounts.c.id, accounts.c.cents)):
        if cents != OPENING + changes.get(account, 0):
            found.append(f"account {account} has {cents}, its entries make {OPENING + changes.get(account, 0)}")
    return found


def main(arguments: list[str]) -> int:
    match arguments:
        case ["open"]:
            open_ledger()
        case ["order", source, target, cents]:
            with engine.begin() as connection:
                job = order(connection, int(source), int(target), int(cents))
            print(f"job {job}")
        case ["check"]:
            with engine.connect() as connection:
                found = problems(connection)
                waiting = connection.execute(
                    text("SELECT count(*) FROM dibs_jobs WHERE status IN ('ready', 'running')")
                )
                print("\n".join(found) or "nothing is missing, nothing is there twice", end="")
                print(f"; {waiting.scalar_one()} to be carried out yet")
                return 1 if found else 0
        case _:
            print("usage: ledger.py open | ledger.py order SOURCE TARGET CENTS | ledger.py check", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
