"""A worker inside a web server's processes: real gunicorn and real uvicorn, real requests and a real SIGTERM."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import environment
from conftest import wait_for
from databases import Database

JOBS = """
import os, time
from pathlib import Path
from dibs import Dibs

app = Dibs()

@app.task(name="note")
def note(folder: str) -> int:
    return os.getpid()

@app.task(name="anote")
async def anote(folder: str) -> int:
    return os.getpid()

@app.task(name="computed", runs_in="process")
def computed(folder: str) -> int:
    return os.getppid()

@app.task(name="gate")
def gate(folder: str) -> None:
    Path(folder, "running").touch()
    while not Path(folder, "go on").exists():
        time.sleep(0.005)

def answer(task):
    job = app.tasks[task].enqueue(os.getcwd())
    return job.id if task == "gate" else job.join(timeout=20)
"""

#: An enqueue at the import: with preload there are connections of the master's when it forks.
WSGI = """
import os, sys
from jobs import answer, app, gate, note

ids = [note.enqueue(os.getcwd()).id for _ in range(3)]

def web(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [str(answer(environ["PATH_INFO"].strip("/"))).encode()]
"""

GUNICORN = """
preload_app = True
workers = 2
bind = "127.0.0.1:0"

def post_worker_init(worker):
    from jobs import app
    worker.jobs = app.worker(lease=2, concurrency=2)
    worker.jobs.start()

def worker_exit(server, worker):
    worker.jobs.stop()
    worker.jobs.join()
"""

ASGI = """
import asyncio
from jobs import answer, app

async def web(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        async with app.worker(lease=2, concurrency=2):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = str(await asyncio.to_thread(answer, scope["path"].strip("/"))).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""


class WebServer:
    """A web server in a folder of its own."""

    def __init__(self, arguments: list[str], folder: Path, url: str) -> None:
        for name, source in {"jobs": JOBS, "wsgi": WSGI, "asgi": ASGI, "gunicorn.conf": GUNICORN}.items():
            (folder / f"{name}.py").write_text(source)
        self._folder = folder
        self._mark = f"TEST_MARK={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=folder,
                # HOME, since gunicorn keeps a socket there.
                env=environment(url) | {name: value, "HOME": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.port = int(wait_for(lambda: self._says(r"http://127\.0\.0\.1:(\d+)"), what="the server to listen")[0])

    def _says(self, words: str) -> list[str]:
        assert self.process.poll() is None, self.log()
        return re.findall(words, self.log())

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def get(self, path: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=30) as answer:
            return int(answer.read())

    def processes(self) -> list[int]:
        """Return the processes that it has started, and those that they have; where the system can say."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found

    def end(self) -> None:
        for pid in {*self.processes(), *([self.process.pid] if self.process.poll() is None else [])}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)


@contextlib.contextmanager
def serving(arguments: list[str], folder: Path, url: str) -> Iterator[WebServer]:
    server = WebServer(arguments, folder, url)
    try:
        yield server
    finally:
        server.end()
        print(server.log()[-4000:])  # shown if the test failed


def check(server: WebServer, database: Database, folder: Path) -> set[int]:
    """See that the server enqueues and works, and that a SIGTERM leaves nothing behind; return who has worked."""
    pids = {server.get(task) for task in ("note", "anote", "computed") for _ in range(3)}
    assert pids <= set(server.processes()) or not Path("/proc").exists()
    last = server.get("gate")
    wait_for((folder / "running").exists, what="the job to run")
    server.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.5)  # what runs may end
    (folder / "go on").touch()
    server.process.wait(15)
    assert set(database.fetch("SELECT status, attempts FROM dibs_jobs")) == {("done", 1)}, server.log()
    assert last
    wait_for(lambda: not server.processes(), within=5, what="the last process to end")
    assert "Traceback" not in server.log()
    return pids


def connections(db: Database) -> int:
    """Return how many connections of dibs' a server says it has; other tests of this process may have left some open."""
    if db.kind != "postgres":
        return 0
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dibs%'"
    return int(db.fetch(asked)[0][0])


def test_gunicorn(db: Database, tmp_path: Path) -> None:
    """With `preload_app`, a connection that was open before the fork, and a worker in each of two processes: jobs are
    enqueued and run there, and a SIGTERM leaves no job running, no process and no connection."""
    before = connections(db)
    with serving(["gunicorn", "wsgi:web"], tmp_path, db.url) as server:
        assert server.process.pid not in check(server, db, tmp_path)
        assert server.process.returncode == 0
    wait_for(lambda: connections(db) <= before, what="the server to notice")


def test_uvicorn(tmp_path: Path) -> None:
    """A worker in the lifespan of an async server: the same, and the server's own end by its signal is its own."""
    url = f"sqlite:///{tmp_path / 'dibs.db'}"
    with serving(["uvicorn", "asgi:web", "--port", "0"], tmp_path, url) as server:
        assert check(server, Database("any", url), tmp_path) == {server.process.pid}
        assert server.process.returncode in (0, -signal.SIGTERM)
