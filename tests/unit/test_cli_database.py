"""The commands on real databases: what they change, print, and leave with."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commands import Command, Ended, process, write_jobs
from databases import NAMES, Database, new_database
from dibs import Dibs, migrations
from dibs.ops import Execute


class Shop:
    """The command on one database, with a module of jobs in the current directory."""

    def __init__(self, url: str, command: Command, module: str) -> None:
        self.url = url
        self.module = module
        self._command = command

    def __call__(self, *arguments: object) -> Ended:
        return self._command(*arguments)

    def enqueue(self, task: str, *arguments: object) -> int:
        ended = self("enqueue", self.module, task, "--json", *arguments)
        assert (ended.code, ended.err) == (0, "")
        job_id: int = ended.json["id"]
        return job_id

    def status_of(self, job_id: int) -> str:
        status: str = self("show", job_id, "--json").json["status"]
        return status

    def work(self) -> None:
        """Run all that is due."""
        assert self("worker", self.module, "--burst", "--quiet").code == 0


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, from which modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def dibs(db: Database, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The command, on the database that the environment names."""
    monkeypatch.setenv("DIBS_DATABASE_URL", db.url)
    return Shop(db.url, Command(capsys), write_jobs(here))


# -- looking ---------------------------------------------------------------------------------------


def test_a_job_from_start_to_end(dibs: Shop) -> None:
    """What is enqueued is shown as it is, listed and counted, for people and for scripts; and so is its end."""
    added = dibs.enqueue("add", "--args", '{"a": 40, "b": 2}', "--key", "k", "--priority", 3, "-q", "sums")
    failed = dibs.enqueue("boom")
    shown = dibs("show", added, "--json").json
    assert (shown["payload"], shown["task_key"], shown["priority"], shown["queue"], shown["status"]) == (
        {"a": 40, "b": 2},
        "k",
        3,
        "sums",
        "ready",
    )
    dibs.work()

    shown = dibs("show", added, "--json").json
    assert (shown["status"], shown["result"], shown["attempts"]) == ("done", 42, 1)
    assert datetime.fromisoformat(shown["finished_at"]).tzinfo is not None
    text = dibs("show", failed).out
    assert "RuntimeError: the oven is cold" in text
    assert text.count("Traceback") == 1
    assert "\\n" not in text

    listed = dibs("jobs", "--json").json
    assert [job["id"] for job in listed] == [failed, added]
    assert listed[1] == shown
    assert [job["id"] for job in dibs("jobs", "--json", "--status", "done").json] == [added]
    assert [job["id"] for job in dibs("jobs", "--json", "--queue", "default").json] == [failed]
    assert [job["id"] for job in dibs("jobs", "--json", "--limit", 1).json] == [failed]
    assert [job["id"] for job in dibs("jobs", "--json", "--before", failed).json] == [added]
    header, first, second = dibs("jobs").out.splitlines()
    assert header.split()[:4] == ["ID", "STATUS", "QUEUE", "TASK"]
    assert first.split()[:5] == [str(failed), "failed", "default", "boom", "1/1"]
    assert second.split()[:5] == [str(added), "done", "sums", "add", "1/12"]


def test_status(dibs: Shop) -> None:
    """Each queue's jobs are counted by status, and what is paused is named, by whom and since when."""
    assert dibs("status", "--json").json["queues"] == []
    assert "no jobs" in dibs("status").err
    dibs.enqueue("boom", "-q", "mail")
    dibs.work()
    dibs.enqueue("add", "--args", "[1]", "--delay", 3600)
    dibs("pause", "mail")
    status = dibs("status", "--json").json
    default, mail = status["queues"]
    assert {name: default[name] for name in ("queue", "ready", "failed", "paused_at")} == {
        "queue": "default",
        "ready": 1,
        "failed": 0,
        "paused_at": None,
    }
    assert (mail["queue"], mail["ready"], mail["running"], mail["failed"]) == ("mail", 0, 0, 1)
    assert "@" in mail["paused_by"]
    assert abs(datetime.fromisoformat(mail["paused_at"]) - datetime.now(UTC)) < timedelta(minutes=5)
    header, _, line, workers = dibs("status").out.splitlines()
    assert header.split() == ["QUEUE", "READY", "RUNNING", "DONE", "FAILED", "CANCELLED"]
    assert line.split()[:6] == ["mail", "0", "0", "0", "1", "0"]
    assert "paused since" in line
    assert (workers, status["workers"]) == ("no worker is registered", {})


def test_status_of_what_is_ready(dibs: Shop, db: Database) -> None:
    """Of the ready jobs it is told which are not due yet, which were tried before, and since when the oldest waits."""
    due, tried, _ = (dibs.enqueue("add", "--args", "[1]", *delay) for delay in ([], [], ["--delay", 3600]))
    dibs.enqueue("boom", "--delay", 3600)
    db.execute("UPDATE dibs_jobs SET attempts = 1 WHERE id = :id", id=tried)
    (queue,) = dibs("status", "--json").json["queues"]
    assert (queue["ready"], queue["scheduled"], queue["retrying"]) == (4, 2, 1)
    assert queue["oldest_due"] == dibs("show", due, "--json").json["run_at"]
    line = dibs("status").out.splitlines()[1]
    assert "2 scheduled, 1 retrying, oldest due 20" in line


def test_no_such_job(dibs: Shop) -> None:
    """A job that is not there is told of in a line, and 1."""
    ended = dibs("show", 99)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("dibs: no job 99: it was never enqueued here")


def test_a_url_after_the_command_or_before_it(dibs: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """--url may stand on both sides of the command; the nearer one counts."""
    monkeypatch.delenv("DIBS_DATABASE_URL")
    assert dibs("status", "--url", dibs.url).code == 0
    assert dibs("--url", dibs.url, "status").code == 0
    assert dibs("--url", "nothing://", "status", "--url", dibs.url).code == 0
    assert dibs("--url", dibs.url, "status", "--url", "nothing://").code == 2
    monkeypatch.setenv("DATABASE_URL", dibs.url)
    assert dibs("status").code == 0


# -- enqueue ---------------------------------------------------------------------------------------


def test_enqueue_says_whether_it_is_new(dibs: Shop) -> None:
    """A second enqueue with the same key names the first job."""
    first = dibs("enqueue", dibs.module, "add", "--args", "[1]", "--key", "k")
    job_id = int(first.out.removeprefix("enqueued "))
    assert dibs("enqueue", dibs.module, "add", "--args", "[1]", "--key", "k").out == f"duplicate of {job_id}\n"
    again = dibs("enqueue", dibs.module, "add", "--args", "[1]", "--key", "k", "--json")
    assert again.json == {"id": job_id, "created": False}
    assert dibs("show", job_id, "--json").json["duplicates"] == 2


def test_enqueue_later(dibs: Shop) -> None:
    """--delay puts off when it is due, by the database's clock."""
    shown = dibs("show", dibs.enqueue("add", "--args", "[1]", "--delay", "90"), "--json").json
    due, created = (datetime.fromisoformat(shown[name]) for name in ("run_at", "created_at"))
    assert timedelta(seconds=89) < due - created < timedelta(seconds=91)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ad"], "the app has no task 'ad': did you mean add?"),
        (["nothing"], "the app has no task 'nothing': it has add, boom, gate"),
        (["add"], "a: is missing"),
        (["add", "--args", '{"a": "x"}'], "a: expected `int`"),
        (["add", "--args", '{"a": 1, "c": 1}'], "c: task add has no such argument: it takes a, b"),
        (["add", "--args", "[1, 2, 3]"], "takes 2 arguments by position"),
        (["add", "--args", "[NaN]"], "a: "),
        (["add", "--args", "[1]", "--key", "x" * 300], "key: is 300 characters long"),
        (["add", "--args", "[1]", "--delay", "-1"], "delay: must be between"),
        (["add", "--args", "[1]", "--priority", "99999"], "priority: must be between"),
        (["add", "--args", "[1]", "-q", ""], "queue: must not be empty"),
    ],
)
def test_enqueue_checks(dibs: Shop, arguments: list[str], said: str) -> None:
    """A task that is not there, or arguments that do not fit its signature: a line, 2, and nothing is stored."""
    ended = dibs("enqueue", f"{dibs.module}:app", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert dibs("jobs", "--json").json == []


# -- steering --------------------------------------------------------------------------------------


def test_cancel_and_requeue(dibs: Shop) -> None:
    """What could be done is printed, what could not is told on stderr, and then the code is 1."""
    one, two = dibs.enqueue("boom"), dibs.enqueue("add", "--args", "[1]")
    ended = dibs("cancel", one, two, "--reason", "not today")
    assert (ended.code, ended.out, ended.err) == (0, f"cancelled {one}\ncancelled {two}\n", "")
    assert "not today" in dibs("show", one).out
    ended = dibs("cancel", one, 999_999)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"dibs: ended already, or never were: {one}, 999999\n"

    ended = dibs("requeue", two, one)
    assert (ended.code, ended.out) == (0, f"requeued {one}\nrequeued {two}\n")
    dibs.work()
    assert (dibs.status_of(one), dibs.status_of(two)) == ("failed", "done")
    ended = dibs("requeue", one, two)
    assert (ended.code, ended.out) == (1, f"requeued {one}\n")
    assert ended.err == f"dibs: not failed or cancelled: {two}\n"
    assert dibs("requeue", "--force", two).out == f"requeued {two}\n"
    assert dibs("requeue", "--force", two).err == f"dibs: not ended: {two}\n"


def test_requeue_where_the_key_is_taken(dibs: Shop) -> None:
    """A job whose key another one has by now stays, its holder is named, and the others go on."""
    first = dibs.enqueue("boom", "--key", "k")
    dibs("cancel", first)
    second = dibs.enqueue("boom", "--key", "k")
    other = dibs.enqueue("boom")
    dibs("cancel", other)
    ended = dibs("requeue", first, other, 999_999)
    assert (ended.code, ended.out) == (1, f"requeued {other}\n")
    assert f"job {first} (held by job {second})" in ended.err
    assert "not failed or cancelled: 999999" in ended.err
    assert ended.err.count("\n") == 1


def test_what_failed_and_the_next_step(dibs: Shop) -> None:
    """Grouped by task and exception, with the command to paste: it says how many it means, and does it when told to."""
    assert "no failed jobs" in dibs("failed").err
    jobs = [dibs.enqueue("boom") for _ in range(3)]
    odd = dibs.enqueue("boom", "-q", "a'b")
    dibs.enqueue("add", "--args", "[1]")
    dibs.work()
    (group,) = dibs("failed", "--json").json
    assert (group["task"], group["error"], group["count"]) == ("boom", "RuntimeError", 4)
    assert group["message"] == "the oven is cold"
    assert group["sample"] in [*jobs, odd]
    assert group["requeue"] == "dibs requeue --task boom --error RuntimeError"
    text = dibs("failed", "--queue", "a'b").out
    assert "1 job of boom: RuntimeError: the oven is cold" in text
    words = next(shlex.split(line) for line in text.splitlines() if "requeue" in line)
    assert words[1:] == ["requeue", "--task", "boom", "--queue", "a'b", "--error", "RuntimeError"]
    assert dibs("failed", "--since", "2h", "--error", "nothing").out == ""
    (lately,) = dibs("failed", "--since", "2h", "--json").json
    assert dibs(*shlex.split(lately["requeue"])[1:], "--dry-run", "--json").json["matching"] == 4
    since = datetime.fromisoformat(re.findall(r"--since (\S+)", lately["requeue"])[0])
    assert timedelta(hours=1.9) < datetime.now(UTC) - since < timedelta(hours=2.1)

    ended = dibs(*words[1:])
    assert (ended.code, ended.out) == (2, "")
    assert "requeue 1 job? Say --yes" in ended.err
    looked = dibs(*words[1:], "--dry-run")
    assert looked.out.splitlines()[0] == "would requeue 1 job"
    assert dibs(*words[1:], "--dry-run", "--json").json["samples"][0]["id"] == odd
    assert dibs.status_of(odd) == "failed"
    assert dibs(*words[1:], "--yes").out == "requeued 1 job\n"
    assert dibs.status_of(odd) == "ready"
    ended = dibs(*shlex.split(group["requeue"])[1:], "--yes", "--json")
    assert ended.json == {"matching": 3, "requeued": 3, "refused": [], "left": 0}
    assert (ended.code, ended.err) == (0, "")


def test_cancel_by_filters(dibs: Shop) -> None:
    """All that are given must fit; how many ended and how many are asked to end is told apart."""
    one, two = dibs.enqueue("add", "--args", "[1]", "--key", "k"), dibs.enqueue("boom")
    listed = dibs("jobs", "--json", "--task", "add", "--key", "k", "--since", "1m", "--status", "ready").json
    assert [job["id"] for job in listed] == [one]
    assert dibs("cancel", "--task", "add", "--since", "2026-01-01 00:00:00 UTC", "--yes").out == "cancelled 1 job\n"
    assert (dibs.status_of(one), dibs.status_of(two)) == ("cancelled", "ready")
    assert dibs("cancel", "--status", "ready", "--yes", "--json").json == {
        "matching": 1,
        "cancelled": 1,
        "asked": 0,
        "left": 0,
    }
    assert dibs("cancel", "--task", "add", "--yes").out == "cancelled 0 jobs\n"
    again = dibs.enqueue("add", "--args", "[1]", "--key", "k")
    ended = dibs("requeue", "--status", "cancelled", "--yes")
    assert (ended.code, ended.out) == (1, "requeued 1 job\n")
    assert f"job {one} (held by job {again})" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cancel"], "which jobs?"),
        (["requeue", "7", "--task", "add"], "not by both"),
        (["requeue", "7", "--dry-run"], "--dry-run goes with filters"),
        (["cancel", "--status", "done", "--yes"], "only ready and running jobs"),
        (["requeue", "--status", "done", "--yes"], "only done again with force"),
        (["jobs", "--since", "yesterday"], "neither a duration"),
        (["jobs", "--since", "9" * 30 + "d"], "longer than"),
        (["failed", "--queue", ""], "queue: must not be empty"),
    ],
)
def test_filters_are_checked(here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    """A line, and 2."""
    ended = Command(capsys)(*arguments, "--url", f"sqlite:///{here / 'new.db'}")
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_pause_and_resume(dibs: Shop) -> None:
    """Nothing of a paused queue starts until it is resumed; saying either twice is no error."""
    job_id = dibs.enqueue("add", "--args", "[1]", "-q", "mail")
    assert [dibs("pause", "mail").out for _ in range(2)] == ["paused mail\n", "mail was paused already\n"]
    dibs.work()
    assert dibs.status_of(job_id) == "ready"
    assert [dibs("resume", "mail").out for _ in range(2)] == ["resumed mail\n", "mail was not paused\n"]
    dibs.work()
    assert dibs.status_of(job_id) == "done"
    assert dibs("pause", "").code == 2


def test_prune(dibs: Shop, db: Database) -> None:
    """Finished jobs whose retention is over are deleted, the others stay."""
    old, young = dibs.enqueue("boom"), dibs.enqueue("boom")
    dibs.work()
    assert dibs("prune").out == "pruned 0\n"
    db.execute("UPDATE dibs_jobs SET expires_at = '2001-01-01 00:00:00' WHERE id = :id", id=old)
    assert dibs("prune").out == "pruned 1\n"
    assert [job["id"] for job in dibs("jobs", "--json").json] == [young]


# -- the schema ------------------------------------------------------------------------------------


@contextlib.contextmanager
def database_without_tables(name: str, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{folder / 'new.db'}"
    else:
        with new_database(name) as url:
            yield url


@pytest.mark.parametrize("name", NAMES)
def test_migrate(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without tables 4 and the command to run; `migrate` says what it applied, and then that there is nothing to
    do."""
    dibs = Command(capsys)
    with database_without_tables(name, here) as url:
        if name != "sqlite":  # which makes its own
            ended = dibs("status", "--url", url)
            assert ended.code == 4
            assert "dibs migrate" in ended.err
            assert dibs("worker", write_jobs(here), "--burst", "--url", url).code == 4
        ended = dibs("migrate", "--url", url)
        assert (ended.code, ended.out) == (
            0,
            "applied 0001 initial\napplied 0002 cancel_reason\napplied 0003 workers\n",
        )
        ended = dibs("migrate", "--url", url)
        assert (ended.code, ended.out.partition(":")[0]) == (0, "nothing to do")
        assert dibs("status", "--url", url).code == 0


@pytest.mark.parametrize("name", NAMES)
def test_migrate_by_hand(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`migrate --sql` connects to nothing; what it prints, run by somebody else, makes the tables."""
    dibs = Command(capsys)
    with database_without_tables(name, here) as url:
        script = dibs("migrate", "--sql", "--url", url.replace("127.0.0.1", "nowhere.invalid"))
        assert (script.code, script.err) == (0, "")
        connection = Database(name, url).connect()
        try:
            for statement in migrations.statements(script.out):
                connection.answer(Execute(statement, {}))
        finally:
            connection.close()
        assert "nothing to do" in dibs("migrate", "--url", url).out
        assert dibs("status", "--url", url).code == 0


@pytest.mark.parametrize("scheme", ["sqlite", "postgresql", "mysql", "mariadb"])
def test_migrate_by_scheme(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The scheme of a URL is enough to print the SQL: statements and comments, nothing else."""
    ended = Command(capsys)("migrate", "--sql", "--url", f"{scheme}://")
    assert (ended.code, ended.err) == (0, "")
    assert "dibs_jobs" in ended.out
    assert all(statement.endswith(";") for statement in migrations.statements(ended.out))


def test_tables_for_newer_code(dibs: Shop, db: Database) -> None:
    """Tables that say that this code is too old for them: 4, and what to do."""
    db.execute("UPDATE dibs_meta SET value = '99' WHERE name = 'oldest_code'")
    try:
        ended = dibs("status")
    finally:
        db.execute("UPDATE dibs_meta SET value = '1' WHERE name = 'oldest_code'")
    assert ended.code == 4
    assert "install a newer dibs" in ended.err


def test_arguments_from_a_pipe(dibs: Shop, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """`--args -` reads them from stdin, for what is too long for a command line."""
    (here / "arguments.json").write_text(json.dumps({"a": 10**30}))
    with (here / "arguments.json").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        job_id = dibs.enqueue("add", "--args", "-")
    assert dibs("show", job_id, "--json").json["payload"] == {"a": 10**30}


def test_a_terminal_that_lacks_letters(tmp_path: Path) -> None:
    """What cannot be written in its encoding is written as an escape: no reason to fail, and least of all half-way."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    app = Dibs(url)
    app.migrate()
    app.pause("shop 😀")
    narrow = "import sys; sys.stdout.reconfigure(encoding='latin-1', errors='strict')"
    ended = process(["status"], tmp_path, url=url, before=narrow)
    assert (ended.code, ended.err) == (0, "")
    assert "\\U0001f600" in ended.out
