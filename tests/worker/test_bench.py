"""`dibs bench` as a person runs it, on every database: what it prints, and that nothing of it stays."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest

from commands import Ended, environment, process, write_jobs
from conftest import wait_for
from databases import Database
from dibs.bench.comparison import Comparison
from dibs.bench.figures import Result
from dibs.dialects.bench import measuring
from leftovers import leftovers


def bench(db: Database, folder: Path, *arguments: str) -> Ended:
    return process(["bench", *arguments], folder, url=db.url)


def test_every_measure(db: Database, tmp_path: Path) -> None:
    """All is measured with every job counted; the JSON alone is on stdout; no job of the user's is touched."""
    app = db.app()

    @app.task(name="noop", queue="bench")
    def noop(number: int) -> None: ...

    mine = noop.enqueue(7)
    options = ("--jobs", "300", "--workers", "2", "--samples", "2", "--idle", "3", "--json")
    ended = bench(db, tmp_path, *options, *(["--async"] if db.kind == "postgres" else []))
    assert ended.code == 0, ended.err
    assert ended.out.count("\n") == 1
    assert "drain, 2 processes" in ended.err
    result = msgspec.json.decode(ended.out, type=Result)
    assert set(ended.json) == set(Result.__struct_fields__)
    assert result.server.database == str(app.url)
    assert result.server.round_trip_ms > 0 or not db.locks_rows
    assert result.enqueue is not None
    assert result.enqueue.asked == 30
    assert 1 <= result.enqueue.jobs <= 30
    assert result.enqueue.times is not None
    assert result.bulk is not None
    assert result.bulk.jobs == 300
    drain = result.drain
    assert drain is not None
    assert (drain.jobs, drain.done, drain.ran, drain.lost, drain.doubled) == (300, 300, 300, 0, 0)
    assert drain.tasks == ("async" if db.kind == "postgres" else "sync")
    assert len(drain.cpu_shares) == 2
    assert 1 <= drain.batch <= 300
    assert drain.per_second > 0
    assert drain.raw_per_second > 0
    assert result.limit == drain.limit
    assert result.latency is not None
    assert result.latency.samples == 2
    assert 0 < result.latency.times.p50_ms <= result.latency.times.max_ms
    assert result.idle is not None
    assert 0 < result.idle.statements_per_second < 50
    assert result.idle.cpu_share < 0.5, "its threads wait, and do not wake each other for nothing"
    assert leftovers(db) == []
    assert (app.job(mine.id).status, app.job(mine.id).claims) == ("ready", 0)
    app.close()


def test_every_way_to_claim(db: Database, tmp_path: Path) -> None:
    """Each way claims rows under both loads, none of them twice; it is drawn, and nothing stays."""
    options = ("--connections", "4", "--seconds", "0.3", "--plot", "ways.svg", "--json")
    ended = bench(db, tmp_path, "strategies", *options)
    assert ended.code == 0, ended.err
    found = msgspec.json.decode(ended.out, type=Comparison)
    ways = [strategy.name for strategy in measuring(db.app().dialect).strategies]
    assert [way.name for way in found.ways] == ways
    assert [(each.way, each.hold_ms) for each in found.outcomes] == [(way, hold) for hold in (0, 5) for way in ways]
    assert all(each.rows > 0 and each.duplicates == 0 and each.tries >= 1 for each in found.outcomes)
    assert max(each.of_best for each in found.outcomes) == 1
    assert bool(found.note) is not db.locks_rows
    assert "<svg" in (tmp_path / "ways.svg").read_text()
    assert leftovers(db) == []


@contextmanager
def at_work(
    db: Database, folder: Path, bar: str, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """Start a bench; yield it and its processes when it shows this bar."""
    running = subprocess.Popen(
        [sys.executable, "-m", "dibs", "bench", *arguments],
        cwd=folder,
        env=environment(db.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr is not None
        assert any(line.startswith(f"  {bar}") for line in running.stderr), f"it never said {bar!r}"
        yield running, psutil.Process(running.pid).children()
    finally:
        running.kill()
        running.communicate()


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() for process in processes)


def test_interrupted(db: Database, tmp_path: Path) -> None:
    """At Ctrl-C, and as well when it is told to end, it leaves neither tables nor processes."""
    for number in (signal.SIGINT,) if db.locks_rows else (signal.SIGINT, signal.SIGTERM):
        options = ("--only", "drain", "--jobs", "5000", "--workers", "2")
        with at_work(db, tmp_path, "drain", *options) as (running, workers):
            assert len(workers) == 2
            assert len(leftovers(db)) == 1
            running.send_signal(number)
            assert running.wait(20) == 130
        wait_for(partial(gone, workers), what="its processes to be gone")
        assert leftovers(db) == []


def test_killed(db: Database, tmp_path: Path) -> None:
    """What a killed run has left over the next one removes, with a word. What a living one works on it leaves alone."""
    other = ("--only", "bulk", "--jobs", "10")
    works = ["an idle worker", "--only", "idle", "--idle", "600"]
    if db.kind == "postgres":
        works = ["3 connections", "strategies", "--connections", "3", "--seconds", "60"]
    with at_work(db, tmp_path, *works) as (running, _):
        (left,) = leftovers(db)
        ended = bench(db, tmp_path, *other)
        assert (ended.code, "removed" in ended.err) == (0, False), ended.err
        assert leftovers(db) == [left]
        workers = psutil.Process(running.pid).children()
        assert workers
        running.kill()
        wait_for(partial(gone, workers), what="its processes to be gone")
    said = ""

    def removed() -> bool:
        nonlocal said  # until the server has noticed that the run is no more, its lock is held
        said += bench(db, tmp_path, *other).err
        return leftovers(db) == []

    wait_for(removed, what="it to be removed")
    assert re.search(rf"removed .*{left}.*left over", said)


def test_at_a_terminal_it_asks(tmp_path: Path) -> None:
    """Where somebody can answer it asks first. The bar is on stderr, the JSON alone on stdout."""
    for answer, code in (("n", 130), ("y", 0)):
        ours, theirs = pty.openpty()
        try:
            running = subprocess.Popen(
                [sys.executable, "-m", "dibs", "bench", "--only", "bulk", "--jobs", "10", "--json"],
                cwd=tmp_path,
                env=environment("sqlite:///some.db"),
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=theirs,
            )
            os.close(theirs)
            shown = b""
            while b"go on?" not in shown:
                shown += os.read(ours, 4096)
            os.write(ours, f"{answer}\n".encode())
            out, _ = running.communicate(timeout=30)
            assert running.returncode == code
            shown += os.read(ours, 65536)
        finally:
            os.close(ours)
        if answer == "y":
            assert msgspec.json.decode(out, type=Result).bulk is not None
            assert b"[####" in shown
        else:
            assert out == b""
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "arguments"),
    [("matplotlib", ["--plot", "x.svg"]), ("redis", ["--redis", "redis://:s3cr3t@127.0.0.1:1/0"])],
)
def test_what_is_not_installed(tmp_path: Path, package: str, arguments: list[str]) -> None:
    """Without a package that an option needs a line names the extra that brings it, before anything is measured."""
    missing = f"sys.modules[{package!r}] = None"
    ended = process(["bench", "strategies", *arguments], tmp_path, url="sqlite:///some.db", before=missing)
    assert (ended.code, ended.out) == (2, "")
    assert 'pip install "dibs[bench]"' in ended.err
    assert ended.err.count("\n") == 1


def test_without_psutil(tmp_path: Path) -> None:
    """How busy the machine is can't be told then, which is said, and all else is measured."""
    missing = "sys.modules['psutil'] = None"
    ended = process(["bench", "--only", "bulk", "--jobs", "10"], tmp_path, url="sqlite:///some.db", before=missing)
    assert ended.code == 0, ended.err
    assert 'pip install "dibs[bench]"' in ended.out
    assert ended.out.splitlines()[-1].startswith("limit of bulk: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "drian"], "'drian': write some of enqueue,bulk,drain,latency,idle"),
        (["--only", "bulk", "--workers", "2"], "--workers is for drain"),
        (["--json", "strategies"], "write the options of strategies after it"),
        (["strategies", "--plot", "x.pdf"], "ends with .svg or .png"),
        (["strategies", "--plot", "no/x.svg"], "there is no such directory"),
        (["strategies", "--redis", "nowhere"], "not a URL of a Redis"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], said: str) -> None:
    """What can't be is refused before anything is measured."""
    ended = process(["bench", *arguments], tmp_path, url="sqlite:///some.db")
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert list(tmp_path.iterdir()) == []


def test_database_of_an_app(tmp_path: Path) -> None:
    """With --app it is measured where the app's queue is, and its tables are left alone. A framework gives its app."""
    module = write_jobs(tmp_path)
    options = ("bench", "--only", "bulk", "--jobs", "10", "--json")
    ended = process([*options, "--app", f"{module}:app"], tmp_path, url="sqlite:///some.db")
    assert ended.code == 0, ended.err
    assert ended.json["server"]["database"] == "sqlite:///some.db"
    assert not (tmp_path / "some.db").exists()
    framework = pytest.importorskip("dibs.contrib.django.management.commands.dibs")
    assert framework._with_app(["bench", "strategies"]) == ["bench", "strategies"]


@pytest.mark.skipif("DIBS_TEST_REDIS_URL" not in os.environ, reason="no Redis in DIBS_TEST_REDIS_URL")
def test_redis(tmp_path: Path) -> None:
    """A list in Redis is measured beside the ways of the database, and removed."""
    import redis

    url = os.environ["DIBS_TEST_REDIS_URL"]
    options = ("--connections", "3", "--seconds", "0.2", "--redis", url, "--json")
    ended = process(["bench", "strategies", *options], tmp_path, url="sqlite:///some.db")
    assert ended.code == 0, ended.err
    found = msgspec.json.decode(ended.out, type=Comparison)
    listed = [each for each in found.outcomes if each.way == "redis list"]
    assert [each.hold_ms for each in listed] == [0, 5]
    assert all(each.rows > 0 and each.duplicates == 0 for each in listed)
    assert redis.Redis.from_url(url).keys("dibs-bench-*") == []
