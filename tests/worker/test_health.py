"""Probes: whether a worker is live and ready, asked over HTTP and by `dibs health`, of real processes."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import Ended, process
from conftest import wait_for
from dibs import Dibs
from dibs.worker import health
from worker.test_cli_worker import Place, Started, place_on

TERM = signal.SIGTERM


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of this test's own."""
    folder = tmp_path / "run"
    monkeypatch.setenv("DIBS_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def place(tmp_path: Path, runtime: Path) -> Iterator[Place]:
    with place_on(tmp_path, f"sqlite:///{tmp_path / 'dibs.db'}") as place:
        place.app.counts()
        yield place


def ask_health(place: Place, *options: str) -> Ended:
    return process(["health", *options], place.folder)


def port_of(worker: Started) -> int:
    return int(wait_for(lambda: worker.pids(r"probes are answered at port (\d+)"), what="the port")[0])


def get(port: int, path: str) -> tuple[int, Any]:
    """Return the status and what is said."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else text.strip()


def test_port(place: Place) -> None:
    """`/livez` and `/readyz` answer 200 while it works; other paths 404 with a sentence; a stop takes no longer for it,
    whoever holds connections open."""
    worker = place.start("--health-port", "0")
    port = port_of(worker)
    wait_for(lambda: get(port, "/readyz")[0] == 200, what="it to be ready")
    code, said = get(port, "/livez?verbose")
    assert (code, said["ok"], said["state"]) == (200, True, "working")
    assert set(said["quiet"]) == {"fetcher", "leases", "upkeep"}
    assert get(port, "/") == (404, "there are /livez and /readyz and /metrics")
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(b"GET /li")
        worker.signal(TERM)
        assert worker.wait(4) == 0, worker.log()
    assert "Traceback" not in worker.log()


def test_port_with_odd_visitors(place: Place) -> None:
    """What is no HTTP, is cut short or comes in numbers ends nothing and is not logged; probes are answered after it."""
    worker = place.start("--health-port", "0")
    port = port_of(worker)
    odd = [b"\0\xff\n\n", b"", b"GET\r\n\r\n", b"POST /livez HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"A" * 100_000]
    for words in odd:
        with socket.create_connection(("127.0.0.1", port)) as visitor:
            visitor.sendall(words)
    crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    for visitor in crowd:
        visitor.close()
    wait_for(lambda: get(port, "/livez")[0] == 200, what="an answer")
    assert len(worker.log().splitlines()) == 2, worker.log()


def test_port_that_is_taken(place: Place) -> None:
    """That is said in a sentence, before anything is claimed."""
    place.enqueue("gate")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        worker = place.start("--health-port", port, "--health-host", "127.0.0.1")
        assert worker.wait() == 2
        assert f"dibs: health-port: 127.0.0.1, port {port} can't be listened at: Address already" in worker.log()
    assert place.statuses() == {("ready", 0)}


def test_database_that_is_away(tmp_path: Path, runtime: Path) -> None:
    """Then a worker is live, so that nobody restarts it, and not ready; it does not say where the database is."""
    with place_on(tmp_path, "postgresql://shop:s3cr3t@127.0.0.1:1/shop") as place:
        worker = place.start("--health-port", "0")
        port = port_of(worker)
        wait_for(lambda: "database" in get(port, "/readyz")[1]["reason"], what="it to notice")
        code, said = get(port, "/readyz")
        assert code == 503
        assert "127.0.0.1" not in said["reason"]
        assert get(port, "/livez")[0] == 200
        assert ask_health(place).code == 0
        ended = ask_health(place, "--ready")
        assert (ended.code, ended.out) == (1, "")
        assert "the database has been out of use for" in ended.err


def test_command(place: Place) -> None:
    """`dibs health` leaves with 0 while the worker is well, and with 1 when it hangs, when it was killed, and when there
    is none."""
    assert ask_health(place).err.startswith("dibs: there is no worker of this user's in ")
    worker = place.start()
    place.start().wait_for_workers(1)
    worker.wait_for_workers(1)
    pid = str(worker.process.pid)
    wait_for(lambda: ask_health(place, "--ready").out.count("is ready") == 2, what="both to have claimed")
    worker.signal(signal.SIGSTOP)
    ended = ask_health(place, "--timeout", "0.5s")
    assert (ended.code, ended.err) == (1, f"dibs: process {pid}: it has not answered within 0.5 s\n")
    assert ask_health(place, "--pid", str(place.started[1].process.pid)).code == 0
    worker.signal(signal.SIGCONT)
    (said,) = ask_health(place, "--pid", pid, "--json").json
    assert (said["pid"], said["ok"], said["state"]) == (int(pid), True, "working")
    worker.signal(signal.SIGKILL)
    worker.wait()
    assert ask_health(place).out == f"process {place.started[1].process.pid} is live\n"
    assert ask_health(place, "--pid", pid).code == 1


def test_sockets_are_tidied_up(place: Place, runtime: Path) -> None:
    """A worker that ends takes its socket along; that of one that was killed goes when somebody asks."""
    for number in (TERM, signal.SIGKILL):
        worker = place.start()
        worker.wait_for_workers(1)
        assert len(list(runtime.iterdir())) == 1
        worker.signal(number)
        worker.wait()
        ask_health(place)
        assert list(runtime.iterdir()) == []


def test_runtime_directory_that_can_not_be_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a worker works all the same, and says that it can't be asked."""
    (place.folder / "file").touch()
    monkeypatch.setenv("DIBS_RUNTIME_DIR", str(place.folder / "file" / "x"))
    worker = place.start("--burst")
    assert worker.wait() == 0
    assert "`dibs health` can't ask this worker, set DIBS_RUNTIME_DIR" in worker.log()


def test_several_processes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor answers for all of its processes: one that hangs is enough not to be live. What the environment
    says of processes and ports is for the supervisor alone."""
    monkeypatch.setenv("DIBS_WORKER_PROCESSES", "2")
    monkeypatch.setenv("DIBS_WORKER_HEALTH_PORT", "0")
    supervisor = place.start()
    port = port_of(supervisor)
    first, _ = supervisor.wait_for_workers(2)
    wait_for(lambda: get(port, "/readyz")[0] == 200, what="all to be ready")
    assert len(get(port, "/livez")[1]["processes"]) == 2
    os.kill(first, signal.SIGSTOP)
    code, said = wait_for(lambda: [each for each in [get(port, "/livez")] if each[0] != 200], what="it to stand still")[
        0
    ]
    assert (code, said["reason"]) == (503, f"process {first}: it has not answered within 2 s")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: get(port, "/livez")[0] == 200, what="it to be gone")
    assert get(port, "/readyz")[0] == 503
    wait_for(lambda: get(port, "/readyz")[0] == 200, what="another one to be ready")
    supervisor.signal(TERM)
    assert supervisor.wait() == 0


def test_thread_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that does not come round is named, and the worker is neither live nor ready. (Here one that logs to a
    handler which blocks, as a pipe does that nobody reads.)"""
    app = Dibs(f"sqlite:///{tmp_path / 'dibs.db'}")

    @app.task(name="boom", max_attempts=1)
    def boom() -> None:
        raise RuntimeError("cold")

    go_on = threading.Event()

    class Pipe(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "boom failed" in record.getMessage():
                go_on.wait(20)

    pipe = Pipe()
    logging.getLogger("dibs").addHandler(pipe)
    try:
        with app.worker(lease=1.0) as worker:  # upkeep comes round as often as it is short
            wait_for(lambda: worker.health.ready().ok, what="it to be ready")
            monkeypatch.setattr(health, "QUIET", 2.0)
            boom.enqueue()
            wait_for(lambda: not worker.health.live().ok, what="it to be noticed")
            assert worker.health.live().reason.startswith("the thread of the fetcher has not come round for 2 s")
            assert not worker.health.ready().ok
            go_on.set()
            wait_for(lambda: worker.health.ready().ok, what="it to go on")
        assert worker.health.live().facts["state"] == "stopped"
    finally:
        go_on.set()
        logging.getLogger("dibs").removeHandler(pipe)
        app.close()
