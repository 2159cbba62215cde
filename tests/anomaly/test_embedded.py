"""A worker inside a program that heeds its signals itself, with an event loop of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import environment
from conftest import wait_for
from dibs import Dibs

PROGRAM = '''
"""An async program with a worker in it, which says what happens."""

import asyncio, signal, sys, time
from pathlib import Path
from dibs import Dibs

app = Dibs()

@app.task(name="agate")
async def agate(folder: str) -> str:
    while not Path(folder, "go on").exists():
        await asyncio.sleep(0.005)
    return "done"

@app.task(name="gate")
def gate(folder: str) -> str:
    while not Path(folder, "go on").exists():
        time.sleep(0.005)
    return "done"

async def main() -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    for turn in range(2):  # a second one in the same process works as well
        async with app.worker(lease=2, concurrency=2, grace=10):
            assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
            print(f"up {turn}", flush=True)
            if turn:
                await stop.wait()
    print("the shutdown hook", len(asyncio.all_tasks()), flush=True)

asyncio.run(main(), debug=True)
'''


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_the_programs(tmp_path: Path, number: signal.Signals) -> None:
    """Under `asyncio.run` with handlers of the program's own: the worker installs none, what runs ends, the program's own
    shutdown comes to its end, and no task is left pending."""
    (tmp_path / "program.py").write_text(PROGRAM)
    url = f"sqlite:///{tmp_path / 'dibs.db'}"
    app = Dibs(url)
    tasks = [app.task(name=name)(lambda folder: None) for name in ("agate", "gate")]
    with (tmp_path / "log").open("wb") as log:
        arguments = [sys.executable, "-W", "error", "-X", "dev", "program.py"]
        process = subprocess.Popen(arguments, cwd=tmp_path, env=environment(url), stdout=log, stderr=log)
    try:
        wait_for(lambda: "up 1" in (tmp_path / "log").read_text(), what="the second worker")
        jobs = [task.enqueue(str(tmp_path)).id for task in tasks]
        wait_for(lambda: {app.job(job).status for job in jobs} == {"running"}, what="the jobs to run")
        process.send_signal(number)
        (tmp_path / "go on").touch()
        assert process.wait(15) == 0, (tmp_path / "log").read_text()
        assert {(app.job(job).status, app.job(job).attempts) for job in jobs} == {("done", 1)}
    finally:
        process.kill()
        process.wait(10)
        app.close()
    said = (tmp_path / "log").read_text()
    assert "the shutdown hook 1\n" in said
    assert "it is pending" not in said
    assert "Traceback" not in said
