"""Two databases with accounts, the queue's and a bank's, and a payment service that knows idempotency keys."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from sqlalchemy import create_engine, text

engine, bank = create_engine("sqlite:///dibs.db"), create_engine("sqlite:///bank.db")
for each in (engine, bank):
    with each.begin() as connection:
        connection.execute(text("CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"))
        connection.execute(text("CREATE TABLE seen_jobs (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO accounts VALUES (1, 500), (2, 0)"))
debit = text("UPDATE accounts SET cents = cents - :cents WHERE id = :account")
credit = text("UPDATE accounts SET cents = cents + :cents WHERE id = :account")

charged = {}
launched = []
countdown = launched.append


class Payments(BaseHTTPRequestHandler):
    """Charges once for each key."""

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = charged.setdefault(self.headers["Idempotency-Key"], (len(charged) + 1, order))[0]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"charge": f"ch_{number}"}).encode())

    def log_message(self, *arguments):
        pass


server = HTTPServer(("127.0.0.1", 0), Payments)
threading.Thread(target=server.serve_forever, daemon=True).start()
payments_url = f"http://127.0.0.1:{server.server_port}/charges"


def after():
    """Each task of the page, run twice by a person who requeues its job, has the effect of one run."""
    from pathlib import Path

    jobs = [export.enqueue(7), pay_out.enqueue(2, 300), job, transfer.enqueue(1, 2, 200)]  # noqa: F821
    launch.enqueue("ariane")  # noqa: F821
    for _ in range(2):
        app.worker(burst=True).run()  # noqa: F821
        assert [app.job(each.id).status for each in jobs] == ["done"] * 4  # noqa: F821
        app.requeue([each.id for each in jobs[:3]], force=True)  # noqa: F821
    app.worker(burst=True).run()  # noqa: F821
    assert Path("order-7.csv").read_text() == "7;9.90\n"
    assert len(charged) == 1
    assert launched == ["ariane"]
    with engine.begin() as own, bank.begin() as other:
        accounts = text("SELECT cents FROM accounts ORDER BY id")
        assert own.execute(accounts).scalars().all() == [300, 200]
        assert other.execute(accounts).scalars().all() == [500, 300]
