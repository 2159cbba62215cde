"""The database's password is in nothing that dibs prints, logs or raises, and on no command line of what it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus, urlsplit, urlunsplit

import pytest

from commands import Command, environment, write_jobs
from conftest import wait_for
from databases import NAMES, VARIABLES, Database
from dibs import Dibs, DibsError
from dibs.ops import Execute

#: All that a URL, a shell, JSON, a regular expression or a driver might trip over.
PASSWORD = "pä:s/w@r?d#%41&+ '\"\\;$(x)<é>=[0]"

SERVERS = [name for name in NAMES if name in VARIABLES]

COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("jobs",),
    ("failed",),
    ("show", "1"),
    ("cancel", "1"),
    ("requeue", "1"),
    ("pause", "q"),
    ("prune",),
    ("migrate",),
    ("verify",),
)

JOBS = '''
"""A task in a process of its own, which is one more command line."""

import time
from pathlib import Path

from dibs import Dibs

app = Dibs()


@app.task(name="wait", runs_in="process")
def wait(folder: str) -> None:
    Path(folder, "runs").touch()
    while not Path(folder, "go on").exists():
        time.sleep(0.01)


@app.task(name="fail", max_attempts=1)
def fail() -> None:
    raise RuntimeError(f"could not use {app.url}")
'''


def found_in(text: str) -> list[str]:
    """Return which spellings of the password, or of half of it, a text has."""
    halves = (PASSWORD, PASSWORD[: len(PASSWORD) // 2], PASSWORD[len(PASSWORD) // 2 :])
    spellings = {
        spelt(part)
        for part in halves
        for spelt in (
            str,
            repr,
            quote,
            quote_plus,
            lambda part: quote(part, safe=""),
            lambda part: json.dumps(part)[1:-1],
        )
    }
    return [each for each in spellings if each in text]


@pytest.fixture(params=SERVERS)
def db(request: pytest.FixtureRequest, _databases: object) -> Database:
    database: Database = _databases(request.param)  # type: ignore[operator]
    database.empty()
    return database


@pytest.fixture
def url(db: Database) -> Iterator[str]:
    """The database's URL with an account that has this password."""
    account = f"secret_{os.getpid()}"
    name, database = (account, '"public"') if db.kind == "postgres" else (f"'{account}'@'%'", db.app().dialect.schema)
    word = PASSWORD.replace("'", "''").replace("\\", "\\\\" if db.kind == "mysql" else "\\")
    root = db.connect()
    try:
        if db.kind == "postgres":
            root.answer(Execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{word}'", {}))
        else:
            root.answer(Execute(f"CREATE USER {name} IDENTIFIED BY '{word}'", {}))
            root.answer(Execute(f"GRANT ALL ON `{database}`.* TO {name}", {}))
        yield with_login(db.url, account, PASSWORD)
    finally:
        root.answer(Execute(f"DROP {'ROLE' if db.kind == 'postgres' else 'USER'} {name}", {}))
        root.close()


def with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))


#: How many of those below have only a wrong login.
LOGINS = 2


def wrong_in_each_way(url: str) -> list[str]:
    """Return URLs with the password in which something else is wrong, or the password is; and half-written ones."""
    parts = urlsplit(url)
    user, login, host = parts.username or "", parts.netloc.rpartition("@")[0], parts.netloc.rpartition("@")[2]
    return [
        with_login(url, user, f"{PASSWORD}x"),
        with_login(url, f"{user}x", PASSWORD),
        urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:1")),
        urlunsplit(parts._replace(netloc=f"{login}@no.such.host.invalid:1")),
        urlunsplit(parts._replace(netloc=f"{login}@{parts.hostname}:port")),
        urlunsplit(parts._replace(path="/no_such_database")),
        urlunsplit(parts._replace(query="no_such_parameter=1")),
        f"{parts.scheme}://{user}:{PASSWORD}@{host}{parts.path}",  # not escaped at all
        f"{parts.scheme}x://{login}@{host}{parts.path}",
        f"{parts.scheme}:/{login}@{host}{parts.path}",
    ]


@pytest.fixture
def dibs(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_what_commands_and_errors_say(url: str, dibs: Command, caplog: pytest.LogCaptureFixture) -> None:
    """Every command, with all in order and with all kinds of mistakes; and the library's own errors and `repr`."""
    caplog.set_level("DEBUG")
    said = [dibs(*command, "--url", url) for command in COMMANDS if command != ("verify",)]
    assert [ended.code for ended in said[:4]] == [0, 0, 0, 0]
    for number, wrong in enumerate(wrong_in_each_way(url)):
        said += [ended := dibs("status", "--url", wrong)]
        # A server may let in everybody who comes from its own machine.
        assert ended.code in ((0, 3) if number < LOGINS else (2, 3)), (wrong, ended)
        assert len(ended.err.strip().splitlines()) == (ended.code != 0), ended.err
        try:
            app = Dibs(wrong)
            assert found_in(f"{app!r} {app.url} {app.url!r}") == []
            app.counts()
        except DibsError as error:
            assert found_in("".join(traceback.format_exception(error, chain=True))) == [], wrong
    for ended in said:
        assert found_in(ended.out + ended.err) == [], ended
    assert found_in(caplog.text) == []


def command_lines_of(group: int) -> list[str]:
    """Return the command lines of a process and of all that it has started, as anybody on the machine can read them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    family, grown = {group}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    lines = []
    for pid in family - {group}:
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in lines if line]


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="command lines are read where Linux has them")
def test_what_a_worker_shows(url: str, db: Database, tmp_path: Path) -> None:
    """The log, the jobs' errors, and the command lines of supervised processes and of those of tasks."""
    module = write_jobs(tmp_path, JOBS)
    app = Dibs(url)
    wait = app.task(name="wait")(lambda folder: None)
    fail = app.task(name="fail", max_attempts=1)(lambda: None)
    waiting, failing = wait.enqueue(folder=str(tmp_path)), fail.enqueue()
    log = tmp_path / "log"
    arguments = ["--url", url, "worker", f"{module}:app", "--processes", "2", "-v", "--lease", "1s"]
    with log.open("wb") as file:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dibs", *arguments],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        wait_for((tmp_path / "runs").exists, within=40, what="the task in a process to run")
        wait_for(lambda: app.job(failing.id).status == "failed")
        lines = command_lines_of(worker.pid)
        assert len(lines) >= 3, lines  # two workers, and a process for the task
        assert [line for line in lines if found_in(line)] == []
        (tmp_path / "go on").touch()
        wait_for(lambda: app.job(waiting.id).status == "done")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()
        app.close()
    assert found_in(log.read_text()) == []
    stored = db.fetch("SELECT * FROM dibs_jobs")
    assert len(stored) == 2
    assert found_in(repr(stored)) == []
