"""`module:app`: what is found there, and what is said when it is not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from commands import Command, write_jobs
from dibs.cli.apps import load
from dibs.cli.problems import WrongUsage

SHOP = """
from dibs import Dibs

def make():
    app = Dibs()
    app.task(name="t")(lambda: 1)
    return app

def cannot():
    raise ValueError("no such shelf")

def three():
    return 3

class Back:
    shop = make()

one, two = make(), Dibs("sqlite:///two.db")
task = one.task(lambda: 2)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and an environment with a database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("DIBS_DATABASE_URL", "sqlite:///environment.db")
    return tmp_path


def test_places(here: Path) -> None:
    """An app is found by its attribute, as what a function makes, or alone in its module."""
    shop, alone = write_jobs(here, SHOP), write_jobs(here)
    assert load(f"{shop}:one", None) is sys.modules[shop].one
    assert load(f"{shop}:Back.shop", None) is sys.modules[shop].Back.shop
    assert list(load(f"{shop}:make", None).tasks) == ["t"]
    assert list(load(f"{shop}:make()", None).tasks) == ["t"]
    assert load(alone, None) is sys.modules[alone].app


def test_current_directory_comes_first(here: Path) -> None:
    """Modules are looked for in the current directory before all others."""
    load(write_jobs(here), None)
    assert sys.path[0] == str(here)


def test_url(here: Path) -> None:
    """--url is for an app that names none; one that names another is refused, since its code goes on using that."""
    shop, other = write_jobs(here, SHOP), write_jobs(here, SHOP)
    assert load(f"{shop}:one", None).url.database == "environment.db"
    assert load(f"{other}:one", "sqlite:///given.db").url.database == "given.db"
    assert os.environ["DIBS_DATABASE_URL"] == "sqlite:///given.db"
    assert load(f"{other}:two", "sqlite:///two.db").url.database == "two.db"
    with pytest.raises(WrongUsage, match=r"is an app on sqlite:///two.db, and --url says sqlite:///given.db"):
        load(f"{other}:two", "sqlite:///given.db")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (":on", "there is no on in NAME, which has the apps one, two"),
        (":Back.nothing", "there is no Back.nothing in NAME"),
        ("", "NAME has the apps one, two: write NAME:app with the name of yours"),
        (":three", r"NAME:three\(\) is of type int, not a Dibs"),
        (":task", "NAME:task is a task, not a Dibs"),
        (":cannot", "NAME:cannot could not make the app: ValueError: no such shelf"),
        (".py", "an app is named like myapp.jobs:app, perhaps NAME:app, not 'NAME.py'"),
        ("x:app", "there is no module 'NAMEx' in"),
        (".x:app", "there is no module 'NAME.x' in"),
    ],
)
def test_what_is_not_there(here: Path, path: str, said: str) -> None:
    """Who names something else is told what there is."""
    shop = write_jobs(here, SHOP)
    with pytest.raises(WrongUsage, match=said.replace("NAME", shop)):
        load(f"{shop}{path}", None)


@pytest.mark.parametrize("name", ["", "a b", "../jobs", "-x", "jobs/mail.py", ".jobs"])
def test_what_is_no_name(here: Path, name: str) -> None:
    """What cannot be a module's name is not imported."""
    with pytest.raises(WrongUsage, match=r"named like myapp.jobs:app"):
        load(f"{name}:app", None)


@pytest.mark.parametrize(
    ("source", "last_line"),
    [
        ("def deep():\n    1 / 0\ndeep()", "ZeroDivisionError: division by zero"),
        ("import not_here", "ModuleNotFoundError: No module named 'not_here'"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("raise OSError('postgresql://me:s3cr3t@h/db')", "OSError: postgresql://me:***@h/db"),
    ],
)
@pytest.mark.parametrize("command", ["worker", "enqueue"])
def test_module_that_does_not_import(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, source: str, last_line: str
) -> None:
    """The user's own traceback is shown, from their code on, then a line that says what was wanted, and 2."""
    name = write_jobs(here, source)
    ended = Command(capsys)(command, f"{name}:app", *(["add"] if command == "enqueue" else []))
    assert ended.code == 2
    *traceback, last = ended.err.splitlines()
    assert traceback[-1] == last_line
    assert last.startswith(f"dibs: {name} ")
    assert last.endswith(last_line)
    files = [line for line in traceback if line.startswith("  File ")]
    assert files
    assert all(str(here / f"{name}.py") in line for line in files)


@pytest.mark.parametrize(
    ("source", "said", "line"),
    [
        ("from dibs import Dibs\napp = Dibs()", "no database: write Dibs(", 2),
        ("from dibs import Dibs\napp = Dibs('x://y')\n", "not a database URL that dibs knows (x://…)", 2),
        (
            "from dibs import Dibs\napp = Dibs('sqlite:///x')\n@app.task(priority='x')\ndef f(): ...",
            "priority: takes",
            3,
        ),
    ],
)
def test_module_that_dibs_refuses(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    said: str,
    line: int,
) -> None:
    """What dibs itself has to say of the user's module is one line, with the place."""
    monkeypatch.delenv("DIBS_DATABASE_URL")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    name = write_jobs(here, source)
    ended = Command(capsys)("worker", f"{name}:app")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"dibs: {name} cannot be imported: {said}")
    assert ended.err.endswith(f"({here / name}.py, line {line})\n")
    assert ended.err.count("\n") == 1
