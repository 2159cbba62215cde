"""`dibs check`: which of the jobs that wait an app's code could not run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commands import Command, write_jobs
from databases import Database
from dibs import Dibs, Secret, checks, migrations
from dibs.cli import check as check_command
from dibs.jobs import Lane, Wanted

#: What the jobs were enqueued by.
OLD = """
from dibs import Dibs, Secret

app = Dibs()


@app.task(name="mail")
def mail(to: str) -> None: ...


@app.task(name="charge", max_attempts=5)
def charge(number: int, pin: Secret[int]) -> None:
    if number == 0:
        raise RuntimeError("no")


@app.task(name="old.report")
def report(month: str) -> None: ...
"""

#: What is to be deployed: `mail` has another argument, `report` is gone.
NEW = """
from dibs import Dibs, Secret

app = Dibs()


@app.task(name="mail")
def mail(to: str, tone: str) -> None: ...


@app.task(name="charge")
def charge(number: int, pin: Secret[int], currency: str = "EUR") -> None: ...
"""

#: The same with an alias.
RENAMED = OLD.replace('"old.report"', '"new.report", aliases=["old.report"]')


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, from which modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def dibs(db: Database, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, on the database that the environment names."""
    monkeypatch.setenv("DIBS_DATABASE_URL", db.url)
    return Command(capsys)


@pytest.fixture
def one(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command on a new SQLite database, for what is the same everywhere."""
    monkeypatch.setenv("DIBS_DATABASE_URL", f"sqlite:///{here / 'dibs.db'}")
    return Command(capsys)


@contextmanager
def app_on(db: Database) -> Iterator[Dibs]:
    app = db.app()
    app.task(name="mail")(_mail)
    app.task(name="charge", max_attempts=5)(_charge)
    app.task(name="old.report")(_report)
    yield app
    app.close()


def _mail(to: str) -> None: ...


def _charge(number: int, pin: Secret[int]) -> None:
    if number == 0:
        raise RuntimeError("no")


def _report(month: str) -> None: ...


def test_what_does_not_fit(dibs: Command, db: Database, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job that has not ended is read, as it is stored; tasks and ids are named, and the exit code says it."""
    old, new, renamed = (write_jobs(here, source) for source in (OLD, NEW, RENAMED))
    with app_on(db) as app:
        mail, charge, report = (app.tasks[name] for name in ("mail", "charge", "old.report"))
        retrying = charge.using(queue="first").enqueue(number=0, pin=1234)
        done = mail.using(queue="first").enqueue("done")
        app.worker(queues=["first"], burst=True).run()
        assert (app.job(retrying.id).attempts, app.job(done.id).status) == (1, "done")
        running = [mail.using(queue="taken").enqueue(str(number)).id for number in range(3)]
        names = app.dialect.names(["mail"])
        wanted = Wanted(Lane("taken", 0), since=None, tasks=names, worker="w", lease=60.0, start=1, limit=3)
        claimed = app.store.run(lambda: app.dialect.claim(wanted))  # one that runs, and two that are held
        assert [each.id for each in claimed] == running
        mails = [mail.enqueue("you").id, mail.using(delay=3600).enqueue("me").id, *running]
        charges = [charge.enqueue(number=n, pin=1234).id for n in (1, 2)]
        reports = [report.enqueue("may").id for _ in range(7)]
        assert app.job(charges[0]).payload["pin"] == "•••"

    fits = dibs("check", old, "--json")
    assert (fits.code, fits.err) == (0, "")
    assert fits.json == {
        "fits": True,
        "jobs": 15,
        "misfits": [],
        "unknown": [],
        "inline": False,
        "schema": {"tables": migrations.SCHEMA, "oldest_code": 1, "code": migrations.SCHEMA},
    }
    assert dibs("check", f"{renamed}:app").out == "all 15 jobs that have not ended fit this code\n"

    for name, size in {"FIRST_BATCH": 1, "MOST_BATCH": 2, "WIDEST": 2}.items():  # as where there are very many
        monkeypatch.setattr(checks, name, size)
    ended = dibs("check", new, "--json")
    assert (ended.code, ended.err) == (1, "dibs: 12 of 15 jobs that have not ended do not fit this code\n")
    (misfits,), (unknown,) = ended.json["misfits"], ended.json["unknown"]
    assert (misfits["task"], misfits["count"], set(misfits["ids"])) == ("mail", 5, set(mails))
    assert misfits["reason"] == "tone: is missing, and task mail cannot be called without it"
    assert (unknown["task"], unknown["count"], unknown["ids"]) == ("old.report", 7, reports[:5])
    lines = [line.split("  ") for line in dibs("check", new).out.splitlines()]
    assert [line[0] for line in lines] == ["TASK", "old.report", "mail"]


def test_secrets_and_many_reasons(one: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was secret for whoever enqueued it is not said, also where the new code does not know it for a secret."""
    old = write_jobs(here, OLD.replace("to: str", "to: Secret[str]").replace("month: str", "months: list[int | str]"))
    new = write_jobs(
        here,
        OLD.replace("to: str", 'to: Literal["you"]')
        .replace("month: str", "months: list[int]")
        .replace("from dibs", "from typing import Literal\nfrom dibs", 1),
    )
    monkeypatch.setattr(checks, "MOST_REASONS", 2)
    monkeypatch.setattr(check_command, "QUICK", 1)
    assert one("enqueue", old, "mail", "--args", '{"to": "hunter2"}').code == 0
    for number in range(4):
        assert one("enqueue", old, "old.report", "--args", json.dumps({"months": [1] * number + ["may"]})).code == 0
    ended = one("check", new, "--json")
    assert ended.code == 1
    assert "hunter2" not in ended.out + ended.err
    assert "checking 5 jobs" in ended.err
    assert [(each["task"], each["count"]) for each in ended.json["misfits"]] == [
        ("mail", 1),
        ("old.report", 1),
        ("old.report", 1),
        ("old.report", 2),
    ]
    assert ended.json["misfits"][-1]["reason"] == "other reasons"


def test_inline_is_refused(one: Command, here: Path) -> None:
    """An app that runs its tasks where they are enqueued queues nothing: in production that is a mistake."""
    module = write_jobs(here, OLD + "\napp.inline = True\n")
    ended = one("check", module, "--json")
    assert (ended.code, ended.json["inline"], ended.json["fits"]) == (1, True, False)
    assert "inline=True" in ended.err
    assert one("check", module).out == ""


def test_tasks_of_other_modules(one: Command, here: Path) -> None:
    """Those that the app names to be imported are known; one that can't be imported is shown as it went wrong."""
    tasks = write_jobs(here, "from dibs import Tasks\ntasks = Tasks()\n@tasks.task(name='t')\ndef t() -> None: ...\n")
    registering = write_jobs(here, "")
    module = write_jobs(here, f"from dibs import Dibs\napp = Dibs(imports=['{registering}'])\n")
    (here / f"{registering}.py").write_text(
        f"from {module} import app\nfrom {tasks} import tasks\napp.include(tasks)\n"
    )
    with_task = write_jobs(here, "from dibs import Dibs\napp = Dibs()\n@app.task(name='t')\ndef t() -> None: ...\n")
    assert one("enqueue", with_task, "t").code == 0
    assert one("check", f"{module}:app").code == 0
    broken = write_jobs(here, "from dibs import Dibs\napp = Dibs(imports=['not_there'])\n")
    ended = one("check", broken)
    assert (ended.code, "not_there" in ended.err) == (2, True)


def test_the_schema(one: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that are newer and let this code work on them, and older ones that it can work on, are told of; tables
    that declare it too old end the check."""
    module = write_jobs(here, OLD)
    assert one("check", module).err == ""
    app = Dibs()
    bare = Database("sqlite", str(app.url))
    bare.execute("UPDATE dibs_meta SET value = '7' WHERE name = 'schema'")
    newer = one("check", module)
    assert (newer.code, "version 7" in newer.err, "they say that it may" in newer.err) == (0, True, True)
    assert one("check", module, "--json").json["schema"] == {"tables": 7, "oldest_code": 1, "code": migrations.SCHEMA}
    monkeypatch.setattr(migrations, "SCHEMA", 8)
    monkeypatch.setattr(app.dialect.__class__, "migrates_itself", False)
    older = one("check", module)
    assert (older.code, "run `dibs migrate`" in older.err) == (0, True)
    bare.execute("UPDATE dibs_meta SET value = '9' WHERE name = 'oldest_code'")
    refused = one("check", module)
    assert (refused.code, "needs" in refused.err or "install a newer dibs" in refused.err) == (4, True)
    bare.close()
