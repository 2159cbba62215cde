"""Settings from the environment: every option of `dibs worker`, and which app a command is about."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import pytest

from commands import Command, process, write_jobs
from dibs.cli.options import PLACE
from dibs.cli.units import duration, size
from dibs.cli.worker import _level, worker

#: Each variable with a value, and what the worker is given: under the name of its parameter, or in the context.
VARIABLES: dict[str, tuple[str, str, Any]] = {
    "DIBS_WORKER_QUEUE": ("mail, slow exports", "queues", ("mail", "slow exports")),
    "DIBS_WORKER_CONCURRENCY": ("7", "concurrency", 7),
    "DIBS_WORKER_AHEAD": ("0", "ahead", 0),
    "DIBS_WORKER_LEASE": ("2m", "lease", 120.0),
    "DIBS_WORKER_GRACE": ("90", "grace", 90.0),
    "DIBS_WORKER_BURST": ("true", "burst", True),
    "DIBS_WORKER_MAX_JOBS": ("1000", "max_jobs", 1000),
    "DIBS_WORKER_MAX_MEMORY": ("1.5G", "max_memory", 3 * 2**29),
    "DIBS_WORKER_MAX_AGE": ("2h", "max_age", 7200.0),
    "DIBS_WORKER_PROCESSES": ("2", "processes", 2),
    "DIBS_WORKER_HEALTH_PORT": ("8080", "health_port", 8080),
    "DIBS_WORKER_HEALTH_HOST": ("127.0.0.1", "health_host", "127.0.0.1"),
    "DIBS_WORKER_LOG_FORMAT": ("json", "log_format", "json"),
    "DIBS_WORKER_VERBOSE": ("1", "verbose", True),
    "DIBS_WORKER_QUIET": ("1", "quiet", True),
    "DIBS_WORKER_APP": ("shop:app", "", "shop:app"),
    "DIBS_WORKER_URL": ("sqlite:///x.db", "", "sqlite:///x.db"),
}

PREFIXED = "from dibs import Dibs\napp = Dibs(prefix='shop_')\n@app.task(name='add')\ndef add(a: int): ...\n"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("DIBS_DATABASE_URL", f"sqlite:///{tmp_path / 'environment.db'}")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def dibs(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def given(*arguments: str) -> click.Context:
    return worker.make_context("worker", list(arguments))


@pytest.mark.parametrize("variable", VARIABLES)
def test_variable(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Each option is read from its variable; an empty one is none."""
    text, name, value = VARIABLES[variable]
    monkeypatch.setenv(variable, "")
    unset = given().params
    monkeypatch.setenv(variable, text)
    context = given()
    found = context.params[name] if name else context.meta.get(PLACE) or context.obj
    assert found == value
    assert {**context.params, name: None} == {**unset, name: None}


def test_every_option_has_a_variable() -> None:
    """None was forgotten, and those of the command line come first."""
    options = {
        f"DIBS_WORKER_{name[2:].upper().replace('-', '_')}"
        for parameter in worker.params
        for name in parameter.opts
        if name.startswith("--")
    }
    assert options == VARIABLES.keys()


def test_the_command_line_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is typed goes before what the environment says, also of two that exclude each other."""
    for variable, (text, _, _) in VARIABLES.items():
        monkeypatch.setenv(variable, text)
    context = given("-q", "mail", "--max-age", "5", "--quiet", "-A", "other:app", "--url", "sqlite:///y.db")
    assert (context.params["queues"], context.params["max_age"]) == (("mail",), 5.0)
    assert (context.meta[PLACE], context.obj) == ("other:app", "sqlite:///y.db")
    monkeypatch.setenv("DIBS_WORKER_VERBOSE", "1")
    monkeypatch.delenv("DIBS_WORKER_QUIET")
    assert _level(given("--quiet"), verbose=True, quiet=True) == 30


def test_wrong_variable(dibs: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is told with the option's name, and ends it with 2."""
    monkeypatch.setenv("DIBS_WORKER_MAX_MEMORY", "a lot")
    ended = dibs("worker", "shop:app")
    assert ended.code == 2
    assert "--max-memory" in ended.err
    assert "'a lot' is no size: write a number with K, M or G, such as 512M" in ended.err


def test_variable_with_a_slip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is nearly right is pointed out; what Kubernetes tells of a service of that name is none of ours."""
    monkeypatch.setenv("DIBS_WORKER_QUEUES", "mail")
    monkeypatch.setenv("DIBS_WORKER_PORT", "tcp://10.0.0.1:80")
    ended = process(["worker", write_jobs(tmp_path), "--burst"], tmp_path, url=f"sqlite:///{tmp_path / 'x.db'}")
    assert ended.code == 0
    assert "DIBS_WORKER_QUEUES is no setting of `dibs worker`: did you mean DIBS_WORKER_QUEUE?" in ended.err
    assert "DIBS_WORKER_PORT" not in ended.err


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("90s", 90), ("1.5h", 5400), (" 2 D ", 172_800), (".5m", 30)])
def test_times(text: str, value: float) -> None:
    """Seconds, or with a unit."""
    assert duration(text) == value


@pytest.mark.parametrize("text", ["", "h", "1w", "1h30m", "--1", "1e3", "nan", "1 000"])
def test_what_is_no_time(text: str) -> None:
    """Is refused."""
    with pytest.raises(click.BadParameter, match="is no time"):
        duration(text)


@pytest.mark.parametrize("text", ["512", "M", "-1M", "1P", "1MBit", "1,5G"])
def test_what_is_no_size(text: str) -> None:
    """Is refused, also a number without a unit: nobody means bytes."""
    assert size("1G") == size("1024m") == size("1GiB") == size("1Gi") == 2**30
    with pytest.raises(click.BadParameter, match="is no size"):
        size(text)


# -- which app ---------------------------------------------------------------------------------------


def test_commands_that_take_an_app(dibs: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-A before or after the command, else DIBS_APP: then a command is about that app's tables, its prefix included."""
    shop = write_jobs(tmp_path, PREFIXED)
    assert dibs("-A", shop, "migrate").code == 0
    assert dibs("enqueue", "-A", shop, "add", "--args", "[1]").out == "enqueued 1\n"
    assert dibs("enqueue", f"{shop}:app", "add", "--args", "[1]").out == "enqueued 2\n"
    monkeypatch.setenv("DIBS_APP", f"{shop}:app")
    assert dibs("enqueue", "add", "--args", "[1]").out == "enqueued 3\n"
    assert dibs("show", "3", "--json").json["task"] == "add"
    assert [queue["ready"] for queue in dibs("status", "--json").json["queues"]] == [3]
    # With a URL on the command line the app of the environment is not asked: there are tables without a prefix there.
    url = f"sqlite:///{tmp_path / 'environment.db'}"
    assert dibs("status", "--json", "--url", url).json["queues"] == []
    monkeypatch.delenv("DIBS_APP")
    assert dibs("status", "--json").json["queues"] == []


def test_no_app_and_two_apps(dibs: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are wrong usage; one in its place goes before DIBS_APP."""
    for arguments in (["worker"], ["enqueue", "add"]):
        ended = dibs(*arguments)
        assert ended.code == 2
        assert "no app: write it as module:attribute, such as myapp.jobs:app, or set DIBS_APP" in ended.err
    ended = dibs("worker", "shop:app", "-A", "other:app")
    assert (ended.code, "shop:app and -A other:app are two apps: name one of them" in ended.err) == (2, True)
    monkeypatch.setenv("DIBS_APP", "environment:app")
    assert "there is no module 'typed'" in dibs("worker", "typed:app").err
    monkeypatch.setenv("DIBS_WORKER_APP", "own:app")
    assert "there is no module 'own'" in dibs("worker").err
    assert "there is no module 'typed'" in dibs("worker", "typed:app").err
    assert "missing argument 'TASK'" in dibs("enqueue").err


def test_help_tells_of_the_environment(dibs: Command) -> None:
    """So that nobody has to look it up."""
    said = " ".join(dibs("worker", "--help").out.split())
    assert "--max-jobs from DIBS_WORKER_MAX_JOBS" in said
    assert "processes" in said.partition("--concurrency")[2].partition("--lease")[0]
