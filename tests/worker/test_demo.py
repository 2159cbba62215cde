"""The demo: real files, real workers, a real SIGKILL, on every database, and what is asked of its proof."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import dibs
from conftest import wait_for
from databases import Database
from dibs.cli.commands import commands
from dibs.demo.demonstration import Course, Demonstration
from dibs.demo.files import jobs_for, list_files
from dibs.demo.folder import MARK, Folder
from dibs.demo.proof import Proof
from dibs.settings import LONGEST_KEY

SOURCES = str(Path(dibs.__file__).parent.parent)

FIGURES = [
    "files",
    "results",
    "verified",
    "lost",
    "doubled",
    "killed",
    "rerun",
    "duplicates",
    "seconds",
    "jobs_per_second",
]

#: Names that are legal for a file, and that a key, a path or a comparison may stumble over.
NASTY = [
    "a",
    "A",
    "a ",
    " a",
    "ä",
    "a\u0308",
    "a.gz",
    "new\nline",
    "50% 'off'?#&.txt",
    "-rf",
    "\u6f22\U0001f41f",
    "n" * 255,
]


@pytest.fixture
def nasty(tmp_path: Path) -> Iterator[Path]:
    """A directory of all that a directory may hold."""
    root = tmp_path / "nasty"
    root.mkdir()
    for name in NASTY:
        (root / name).write_bytes(name.encode() * 50)
    (root / "empty").write_bytes(b"")
    deep = root / "a.gz.d" / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(os.urandom(100_000))
    os.close(os.open(os.fsencode(root) + b"/not \xff text", os.O_CREAT | os.O_WRONLY))
    (root / "loop").symlink_to(root)
    (root / "nowhere").symlink_to("nothing")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(root)  # the path of a socket may not be long
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        yield root


def demonstrate(db: Database, directory: Path, out: Path) -> tuple[Proof, Course]:
    """Run the demo on a directory in which a file vanishes and another one grows meanwhile."""
    (directory / "vanishes").write_text("here")
    (directory / "grows").write_text("small")
    folder = Folder(out)
    listing = list_files(str(directory), without=out)
    folder.take()
    (directory / "vanishes").unlink()
    (directory / "grows").write_text("bigger")
    app = db.app()
    try:
        return Demonstration(app, db.url, listing, folder, workers=2, lease=1.0).run()
    finally:
        app.close()
        folder.leave()


def test_proof_on_every_database(db: Database, nasty: Path, tmp_path: Path) -> None:
    """Nothing is lost and nothing doubled, whatever the files are called, and other jobs are left alone."""
    app = db.app()

    @app.task(name="dibs.demo.compress", queue="mine")
    def mine(source: str, result: str) -> None: ...

    job = mine.using(key="mine").enqueue("a", "b")
    proof, course = demonstrate(db, nasty, tmp_path / "out")
    files = len(NASTY) + 2
    assert proof.problems == []
    assert (proof.files, proof.results, proof.verified, proof.lost, proof.doubled) == (files, files, files, 0, 0)
    assert proof.duplicates == files
    assert proof.changed == 2
    assert proof.killed == 1
    assert proof.rerun >= 1
    assert set(proof.attempts) == {2}
    assert course.kill is not None
    with pytest.raises(ProcessLookupError):
        os.kill(course.kill.pid, 0)
    assert (app.job(job.id).status, app.job(job.id).claims) == ("ready", 0)
    app.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["demo", *arguments])


def test_json(tmp_path: Path) -> None:
    """With --json there is one object on stdout and nothing else, and the queue is in the output folder."""
    files = tmp_path / "files"
    files.mkdir()
    for number in range(3):
        (files / str(number)).write_bytes(b"x" * number)
    out = tmp_path / "out"
    result = run(str(files), "--workers", "2", "--out", str(out), "--json")
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    assert list(figures) == FIGURES
    assert [figures[name] for name in FIGURES[:6]] == [3, 3, 3, 0, 0, 1]
    assert all(type(figures[name]) is int for name in FIGURES[:8])
    assert (out / "dibs.db").exists()
    assert "killed worker" in result.stderr


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """The demo empties no folder that it did not make, and says which option helps."""
    (tmp_path / "precious").write_text("mine")
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_text("a")
    result = run(str(files), "--out", str(tmp_path))
    assert result.exit_code == 2
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("mine")
    result = run(str(files), "--out", str(other))
    assert result.exit_code == 1
    assert "--out" in result.stderr
    assert (other / "precious").read_text() == "mine"


def test_folder_of_an_earlier_demo_is_emptied(tmp_path: Path) -> None:
    """What a demo made goes; what somebody put beside it stays."""
    folder = Folder(tmp_path / "out")
    folder.take()
    (folder.results / "000001 a.gz").write_bytes(b"old")
    folder.database.write_bytes(b"old")
    (folder.path / "notes").write_text("mine")
    with pytest.raises(Exception, match="another demo is running"):
        Folder(tmp_path / "out").take()
    folder.leave()
    again = Folder(tmp_path / "out")
    again.take()
    again.leave()
    assert sorted(path.name for path in again.path.iterdir()) == [
        "logs",
        MARK,
        "notes",
        "results",
        "runs",
        "unfinished",
    ]
    assert list(again.results.iterdir()) == []


def test_nothing_to_do(tmp_path: Path) -> None:
    """An empty directory is an error that says so, and no folder is made for it."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "loop").symlink_to(".")
    result = run(str(tmp_path / "files"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "no file" in result.stderr
    assert "links: 1" in result.stderr
    assert not (tmp_path / "out").exists()


def test_keys_fit(nasty: Path, tmp_path: Path) -> None:
    """Every file has a key of its own that is short enough, another one in each run, and a result of its own."""
    listing = list_files(str(nasty), without=tmp_path / "out")
    assert len(listing.files) == len(NASTY) + 2
    assert listing.skipped == {
        "links": 2,
        "things that are no files (sockets, pipes, devices)": 2,
        "files whose names are not text (a job's arguments are JSON)": 1,
    }
    jobs = [job for token in ("one", "two") for job in jobs_for(listing, tmp_path / token, token=token)]
    assert len({job.key for job in jobs}) == len({job.result for job in jobs}) == len(jobs)
    assert all(len(job.key) <= LONGEST_KEY for job in jobs)
    assert all(len(os.path.basename(job.result).encode()) <= 255 for job in jobs)


def start(files: Path, out: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a demo in a process of its own; return it and the process ids of its workers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "demo", str(files), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCES},
    )
    assert process.stderr is not None
    started = next(line for line in process.stderr if line.startswith("started"))
    return process, [int(pid) for pid in started.partition("pids ")[2].rstrip(")\n").split(", ")]


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C ends the demo and its workers."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_text("a")
    out = tmp_path / "out"
    process, pids = start(files, out)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    process.communicate()
    wait_for(lambda: not any(map(is_alive, pids)), what="the workers to be gone")


def test_a_worker_that_dies_by_itself(tmp_path: Path) -> None:
    """The demo ends with what is wrong when a worker it did not kill dies, instead of waiting for it."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_text("a")
    out = tmp_path / "out"
    process, (pid, *_) = start(files, out)
    os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert f"pid {pid}) ended by itself (signal 9)" in said


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
