"""How fast does a queue of no-op jobs drain? dibs' workers beside raw SQL of the same shape, in the same run.

    .venv/bin/python benchmarks/drain.py                     # throwaway servers of each kind, durable settings
    .venv/bin/python benchmarks/drain.py --kind postgres --jobs 20000 --processes 2 --rounds 5
    .venv/bin/python benchmarks/drain.py --json

Raw SQL is one connection that claims 100 rows and finishes them, over and over, keeping the rows: no fence, no lease
to renew, no task to call, nobody else to heed. It is what this machine's database can do at that batch size, so only
the ratio means something elsewhere. Rounds alternate between the two; the figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from servers import Unavailable, running

from dibs import Dibs
from dibs.ops import Execute, Fetch

KINDS = ("postgres", "mysql", "mariadb", "sqlite")
BATCH = 100

CLAIM = {
    "postgres": """
        WITH picked AS MATERIALIZED (
            SELECT id FROM dibs_jobs WHERE status = 'ready' AND queue = 'default' AND priority = 0 AND run_at <= now()
            ORDER BY run_at, id LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED)
        UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1
        WHERE id = ANY(ARRAY(SELECT id FROM picked)) RETURNING id, payload
    """,
    "sqlite": """
        UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1 WHERE id IN (
            SELECT id FROM dibs_jobs WHERE status = 'ready' AND queue = 'default' AND priority = 0
            AND run_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY run_at, id LIMIT 100)
        RETURNING id, payload
    """,
    "mysql": """
        SELECT id, payload FROM dibs_jobs
        WHERE status = 'ready' AND queue = 'default' AND priority = 0 AND run_at <= UTC_TIMESTAMP(6)
        ORDER BY run_at, id LIMIT 100 FOR UPDATE SKIP LOCKED
    """,
}
MARK = "UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1 WHERE id IN :ids"
FINISH = {
    "postgres": "UPDATE dibs_jobs SET status = 'done', finished_at = now() WHERE id = ANY(CAST(:ids AS bigint[]))",
    "sqlite": """UPDATE dibs_jobs SET status = 'done', finished_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
                 WHERE id IN (SELECT value FROM json_each(:ids))""",
    "mysql": "UPDATE dibs_jobs SET status = 'done', finished_at = UTC_TIMESTAMP(6) WHERE id IN :ids",
}

WORKER = """
import sys
from dibs import Dibs
app = Dibs(sys.argv[1])
@app.task(name="noop")
def noop(number: int) -> None: ...
@app.task(name="anoop")
async def anoop(number: int) -> None: ...
print("ready", flush=True)
sys.stdin.readline()
app.worker(burst=True).run()
"""


def enqueue(app: Dibs, jobs: int, name: str) -> float:
    """Empty the queue and write the jobs; return jobs per second."""
    connection = app.store.open()
    connection.answer(Execute("DELETE FROM dibs_jobs", {}))
    if app.dialect.family == "postgresql":
        connection.answer(Execute("VACUUM ANALYZE dibs_jobs", {}))
    connection.close()
    task = app.tasks[name]
    start = time.perf_counter()
    app.enqueue_many(task.call(number) for number in range(jobs))
    return jobs / (time.perf_counter() - start)


def drain(url: str, app: Dibs, jobs: int, processes: int) -> float:
    """Let worker processes empty the queue; return jobs per second, from their start signal to the last one's end."""
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    start = time.perf_counter()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    codes = [worker.wait(timeout=600) for worker in workers]
    took = time.perf_counter() - start
    counts = app.counts()
    if codes != [0] * processes or counts != {"default": {"done": jobs}}:
        raise SystemExit(f"not every job was done: exit codes {codes}, {counts}")
    return jobs / took


def raw(app: Dibs, kind: str, jobs: int) -> float:
    """Claim and finish everything in batches of 100 on one connection; return jobs per second."""
    kind = "mysql" if kind == "mariadb" else kind
    connection = app.store.open()
    done = 0
    start = time.perf_counter()
    while True:
        if kind == "mysql":
            connection.begin()
            rows = connection.answer(Fetch(CLAIM[kind], {}))
            if rows:
                connection.answer(Execute(MARK, {"ids": app.dialect.ids(row[0] for row in rows)}))
            connection.commit()
        else:
            rows = connection.answer(Fetch(CLAIM[kind], {}))
        if not rows:
            break
        done += connection.answer(Execute(FINISH[kind], {"ids": app.dialect.ids(row[0] for row in rows)}))
    took = time.perf_counter() - start
    connection.close()
    assert done == jobs, f"{done} of {jobs}"
    return jobs / took


@contextmanager
def database(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the URL of a migrated, durable database and its version."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/bench.db", "SQLite"
    else:
        with running(kind, durable=True) as server:
            yield server.url, f"{kind} {server.version}"


def measure(kind: str, asked: argparse.Namespace) -> dict[str, object]:
    with database(kind) as (url, version):
        app = Dibs(url)
        app.task(name="noop")(_noop)
        app.task(name="anoop")(_anoop)
        app.migrate()
        drained, rawly, written = [], [], []
        for _ in range(asked.rounds):
            written.append(enqueue(app, asked.jobs, asked.task))
            drained.append(drain(url, app, asked.jobs, asked.processes))
            enqueue(app, asked.jobs, asked.task)
            rawly.append(raw(app, kind, asked.jobs))
    return {
        "database": version,
        "jobs": asked.jobs,
        "processes": asked.processes,
        "enqueue": round(statistics.median(written)),
        "drain": round(statistics.median(drained)),
        "drain_min": round(min(drained)),
        "drain_max": round(max(drained)),
        "raw": round(statistics.median(rawly)),
        "ratio": round(statistics.median(drained) / statistics.median(rawly), 2),
    }


def _noop(number: int) -> None: ...


async def _anoop(number: int) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", choices=KINDS, help="which databases (all unless said)")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", choices=("noop", "anoop"), default="noop", help="a thread's task or an async one")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not asked.json:
        print(
            f"{asked.jobs} jobs, {asked.processes} processes, {os.cpu_count()} cores, medians of {asked.rounds} rounds"
        )
        print(f"{'':34}{'enqueue/s':>10}{'drain/s':>10}{'min–max':>16}{'raw SQL/s':>11}{'ratio':>7}")
    results = []
    for kind in asked.kind or KINDS:
        try:
            figures = measure(kind, asked)
        except Unavailable as reason:
            print(f"{kind}: not measured: {reason}", file=sys.stderr)
            continue
        results.append(figures)
        if not asked.json:
            spread = f"{figures['drain_min']}–{figures['drain_max']}"
            print(
                f"{figures['database']:34}{figures['enqueue']:>10}{figures['drain']:>10}{spread:>16}"
                f"{figures['raw']:>11}{figures['ratio']:>7}"
            )
    if asked.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
