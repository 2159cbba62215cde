"""What a worker's log says: of which job each record is, wherever it runs, and one line for many jobs."""

from __future__ import annotations

import json
import logging
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.worker.summary import Summary
from worker.test_cli_worker import Place, place_on

JOBS = """
import asyncio, logging
from dibs import Dibs

app = Dibs()
logger = logging.getLogger("shop")

def say(where):
    logger.info("sold %s", where, extra={"where": {"it": where}})
    try:
        raise ValueError("cold")
    except ValueError:
        logger.exception("oh")

@app.task(name="thread")
def thread() -> None:
    say("thread")

@app.task(name="loop")
async def loop() -> None:
    say("loop")
    await asyncio.to_thread(logger.info, "from a thread of its own")

@app.task(name="process", runs_in="process", queue="slow")
def process() -> None:
    say("process")

@app.task(name="boom", max_attempts=1)
def boom() -> None:
    raise RuntimeError("cold")
"""

TASKS = ["thread", "loop", "process", "boom"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_on(tmp_path, f"sqlite:///{tmp_path / 'dibs.db'}", JOBS) as place:
        place.app.counts()
        for name in TASKS:
            place.app.task(name=name, max_attempts=1, queue="slow" if name == "process" else None)(
                lambda: None
            ).enqueue()
        yield place


def test_json(place: Place) -> None:
    """Each line is an object; the user's own records name their job, from threads, the loop and processes, and keep
    what was given with them; so do dibs' own of a job. The last line but one sums up."""
    worker = place.start("--burst", "--log-format", "json")
    assert worker.wait() == 0
    lines = [json.loads(line) for line in worker.log().splitlines()]
    theirs = [line for line in lines if line["logger"] == "shop"]
    for number, task in enumerate(TASKS[:3], 1):
        said = [line for line in theirs if line["dibs_task"] == task]
        assert {(line["dibs_job"], line["dibs_attempt"]) for line in said} == {(number, 1)}
        assert {line["dibs_queue"] for line in said} == {"slow" if task == "process" else "default"}
        assert (said[0]["message"], said[0]["where"]) == (f"sold {task}", {"it": task})
        assert said[1]["message"] == "oh"
        assert said[1]["exception"].endswith("ValueError: cold")
    assert [line["message"] for line in theirs if line["dibs_task"] == "loop"][-1] == "from a thread of its own"
    (failed,) = [line for line in lines if "failed: RuntimeError: cold" in line["message"]]
    assert (failed["level"], failed["dibs_job"], failed["dibs_task"]) == ("ERROR", 4, "boom")
    assert ": 3 done, 0 retried, 1 failed in " in lines[-2]["message"]


def test_text(place: Place) -> None:
    """The same for people: the job is named before the message."""
    worker = place.start("--burst")
    assert worker.wait() == 0
    for number, task in enumerate(TASKS[:3], 1):
        assert f" INFO shop [job {number} {task}]: sold {task}\n" in worker.log()
        assert f" ERROR shop [job {number} {task}]: oh\nTraceback (most recent call last):\n" in worker.log()
    assert "thread done" not in worker.log()


def test_idle_worker_says_nothing(place: Place) -> None:
    """Where nothing has ended there is no summary."""
    assert place.start("--burst", "--quiet").wait() == 0
    worker = place.start("--log-format", "text")
    worker.wait_for_workers(1)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert len(worker.log().splitlines()) == 2, worker.log()


def test_log_that_the_program_has_set_up(place: Place) -> None:
    """Its handlers stay as they are, and that the format is not heeded is said; a format may name the job."""
    source = JOBS + (
        "from dibs.logs import JobFilter\n"
        "handler = logging.StreamHandler()\n"
        "handler.setFormatter(logging.Formatter('mine: %(dibs_job)s %(message)s'))\n"
        "handler.addFilter(JobFilter())\n"
        "logging.getLogger().addHandler(handler)\n"
        "logging.getLogger().setLevel('INFO')\n"
    )
    (place.folder / f"{place.module}.py").write_text(source)
    worker = place.start("--burst", "--log-format", "json")
    assert worker.wait() == 0
    lines = [line for line in worker.log().splitlines() if line.startswith("mine: ")]
    assert lines[0].startswith("mine: None --log-format json is not heeded")
    assert {"mine: 1 sold thread", "mine: 2 sold loop", "mine: 3 sold process"} <= set(lines)


def test_summary(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ten seconds, of what has ended since the last time, with all kinds of ends."""
    caplog.set_level(logging.INFO, "dibs")
    ended, stuck = Counter(done=1), [0]
    summary = Summary("w", lambda: (2, 30, stuck[0]), ended.copy)
    summary.tell()
    assert caplog.messages == []
    monkeypatch.setattr("dibs.worker.summary.EVERY", 0.0)
    summary.tell()
    summary.tell()  # nothing has ended since
    ended.update(("done", "lost", "released", "retried", "done"))
    summary.tell()
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith("worker w: 1 done, 0 retried, 0 failed in 0.")
    assert caplog.messages[1].startswith("worker w: 2 done, 1 retried, 0 failed, 1 lost, 1 released in 0.0 s (")
    assert caplog.messages[1].endswith("/s); 2 running, 30 held")
    for stuck[0] in (1, 1, 0):
        summary.tell()
    assert [message.partition("; ")[2] for message in caplog.messages[2:]] == [
        "2 running, 30 held, 1 stuck",
        "2 running, 30 held",
    ], "also where nothing has ended, once"
