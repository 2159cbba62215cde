"""The command line without a database: what is asked, what is said, and the exit codes."""

from __future__ import annotations

import inspect
import sys
import time
from pathlib import Path

import click
import pytest

from commands import Command, process
from dibs import errors
from dibs.__main__ import _command
from dibs.cli import secrets
from dibs.cli.commands import COMMANDS, EPILOG, commands
from dibs.cli.output import print_table, printable
from dibs.cli.run import code_of
from dibs.cli.worker import _for_one

#: One that nobody listens at, for each kind of server.
NOBODY = [f"{scheme}://shop:s3cr3t@127.0.0.1:1/shop" for scheme in ("postgresql", "mysql", "mariadb")]


@pytest.fixture
def dibs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, in an environment without a database."""
    monkeypatch.delenv("DIBS_DATABASE_URL", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    return Command(capsys)


def test_help_names_every_command(dibs: Command) -> None:
    """`dibs --help` has all commands, each with the line that its own help begins with, and the exit codes."""
    ended = dibs("--help")
    assert ended.code == 0
    assert " ".join(EPILOG.split()) in " ".join(ended.out.split())
    for name, (_, line) in COMMANDS.items():
        assert line.rstrip(".") in ended.out
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        assert inspect.cleandoc(command.help or "").splitlines()[0] == line


def test_help_is_quick(tmp_path: Path) -> None:
    """Neither the help nor a wrong command imports what only some commands need."""
    for arguments in (["--help"], ["--version"], ["nope"]):
        ended = process(
            arguments,
            tmp_path,
            before="import atexit; atexit.register(lambda: print(*sys.modules, sep='\\n'))",
        )
        assert "dibs.cli.commands" in ended.out.split()
        assert not {"dibs.app", "dibs.store", "msgspec", "asyncio", "logging"} & set(ended.out.split())


def test_the_environment_completes_a_command(tmp_path: Path) -> None:
    """The shell can ask for completions."""
    ended = process(
        [],
        tmp_path,
        before="import os; os.environ |= {'_DIBS_COMPLETE': 'bash_complete', 'COMP_WORDS': 'dibs re', "
        "'COMP_CWORD': '1'}",
    )
    assert ended.out.split() == ["plain,requeue", "plain,resume"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["statsu"], "there is no command 'statsu': did you mean status?"),
        (["show"], "missing argument 'ID'"),
        (["show", "x"], "'x' is not the id of a job"),
        (["show", "9" * 30], "is not the id of a job"),
        (["jobs", "--status", "pending"], "'pending' is not one of 'ready'"),
        (["requeue", "7", "--forse"], "no such option"),
        (["worker", "x:app", "-v", "--quiet"], "exclude each other"),
        (["status"], 'no database: write Dibs("sqlite:///dibs.db"), or set DIBS_DATABASE_URL or DATABASE_URL'),
        (["status", "--url", "oracle://x"], "not a database URL that dibs knows (oracle://…)"),
        (["--url", "nothing", "status"], "it has no ://"),
        (["status", "--url", "sqlite://dibs.db"], "three slashes"),
        (["enqueue", "x:app", "add", "--args", "{a"], "--args is not JSON"),
        (["enqueue", "x:app", "add", "--args", "7"], "--args takes a JSON object"),
    ],
)
def test_wrong_usage(dibs: Command, arguments: list[str], said: str) -> None:
    """Who asks for something that cannot be gets one line that says what is wrong, on stderr, and 2."""
    ended = dibs(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("dibs: ")
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert not ended.err.rstrip().endswith(".")


def test_no_command_at_all(dibs: Command) -> None:
    """`dibs` alone is wrong usage, and gets the help."""
    ended = dibs()
    assert (ended.code, ended.out) == (2, "")
    assert "Commands:" in ended.err


def test_version(dibs: Command) -> None:
    """The version is the package's."""
    import dibs as package

    assert dibs("--version").out == f"dibs {package.__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.JobNotFound(7), 1),
        (errors.KeyTaken({1: 2}, []), 1),
        (errors.ConfigurationError("x"), 2),
        (errors.InvalidArgument("x", "y"), 2),
        (errors.DatabaseError("x"), 3),
        (errors.DatabaseUnavailable("x"), 3),
        (errors.ReadOnlyDatabase("x"), 3),
        (errors.UnsuitableDatabase("x"), 3),
        (errors.OutcomeUnknown("x"), 3),
        (errors.SchemaError("x"), 4),
        (ZeroDivisionError("x"), None),
    ],
)
def test_exit_codes(error: Exception, code: int | None) -> None:
    """Each class of error has the exit code that the docs name; what nobody expects keeps its traceback."""
    assert code_of(error) == code


@pytest.mark.parametrize("url", NOBODY)
def test_server_that_is_down(dibs: Command, url: str) -> None:
    """A server that cannot be reached is told of in a line without the password, and 3."""
    for ended in (dibs("status", "--url", url), dibs("--url", url, "migrate")):
        assert ended.code == 3
        assert ended.err.startswith(f"dibs: cannot connect to {url.partition(':')[0]}://shop@127.0.0.1:1/shop")
        assert ended.err.count("\n") == 1
        assert "s3cr3t" not in ended.err


@pytest.mark.parametrize(("url", "package"), list(zip(NOBODY, ("psycopg", "pymysql", "pymysql"), strict=True)))
def test_driver_that_is_not_installed(tmp_path: Path, url: str, package: str) -> None:
    """Without the driver a line names the extra that brings it, and 2."""
    ended = process(["status", "--url", url], tmp_path, before=f"sys.modules[{package!r}] = None")
    assert ended.code == 2
    extra = "postgres" if package == "psycopg" else "mysql"
    assert f'pip install "dibs[{extra}]"' in ended.err
    assert ended.err.count("\n") == 1


def test_reader_that_has_had_enough(tmp_path: Path) -> None:
    """A pipe that is closed at the other end is no reason for a traceback."""
    ended = process(["--help"], tmp_path, before="import os; r, w = os.pipe(); os.dup2(w, 1); os.close(w); os.close(r)")
    assert (ended.code, ended.err) == (1, "")


def test_ctrl_c(tmp_path: Path) -> None:
    """A command that is interrupted says so in a line and leaves with 130, also while it is still starting."""
    in_command = "import _signal, click; click.Context.invoke = lambda *_, **__: _signal.raise_signal(2)"
    finder = "lambda self, name, *_: _signal.raise_signal(2) if name == 'dibs.cli.run' else None"
    while_importing = f"import _signal; sys.meta_path.insert(0, type('Finder', (), {{'find_spec': {finder}}})())"
    for before in (in_command, while_importing):
        ended = process(["jobs", "--url", "sqlite:///x.db"], tmp_path, before=before)
        assert (ended.code, ended.out, ended.err) == (130, "", "dibs: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["worker", "x:app"], "worker"),
        (["--url", "worker", "status"], "status"),
        (["--url=x", "worker"], "worker"),
        (["-A", "x:app", "worker"], "worker"),
        (["--app", "worker", "status"], "status"),
        (["--version"], None),
        ([], None),
    ],
)
def test_command_is_known_before_click(arguments: list[str], command: str | None) -> None:
    """Whether this is a worker is known without importing anything."""
    assert _command(arguments) == command


def test_arguments_of_one_process() -> None:
    """A supervised process gets the arguments as they are, without the number of processes, and without the URL."""
    assert _for_one(["worker", "--processes", "3", "a:b", "-q", "3"]) == ["worker", "a:b", "-q", "3"]
    assert _for_one(["--url", "u", "worker", "--processes=3", "a:b"]) == ["worker", "a:b"]


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("at postgresql://me:s3cr3t@h/db: no", "at postgresql://me:***@h/db: no"),
        ("at mysql://me:p@ss:w@rd@h:3306/db", "at mysql://me:***@h:3306/db"),
        ("at postgresql://me@h/db and http://h/a:b", "at postgresql://me@h/db and http://h/a:b"),
        ("host=h password=s3cr3t user=me", "host=h password=*** user=me"),
        ("postgresql://h/db?user=me&password=s3cr3t&x=1", "postgresql://h/db?user=me&password=***&x=1"),
        ("the driver says %21zzTop! to (and !zzTop!)", "the driver says *** to (and ***)"),
        ("the shop is open", "the shop is open"),
    ],
)
def test_no_passwords(monkeypatch: pytest.MonkeyPatch, text: str, scrubbed: str) -> None:
    """A password is not printed: not in a URL, not by its name, and not alone where it is known; nothing else is
    lost."""
    monkeypatch.setattr(secrets, "_hidden", set())
    secrets.hide("postgresql://me:%21zzTop!@h/db")
    secrets.hide("postgresql://shop:shop@h/shop")
    secrets.hide("postgresql://me:abc@h/db")
    assert secrets.scrub(text) == scrubbed


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns are as wide as what is in them, numbers on the right; what would steer the terminal is shown."""
    print_table(["ID", "TASK"], [[7, "a\x1b[2J"], [12345, "b\nc"], [1, None]])
    assert capsys.readouterr().out == "   ID  TASK\n    7  a\\x1b[2J\n12345  b\\nc\n    1\n"
    assert printable("Zoë\t→\n") == "Zoë\\t→\n"


def test_progress_of_a_long_prune(dibs: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who watches a long prune on a terminal sees how far it is; a script gets the number alone."""
    rounds = iter([1_500, 1_500, 7] * 2)

    def prune_for(store: object, *, until: float) -> int:
        number = next(rounds)
        while number > 7 and time.monotonic() < until:
            pass
        return number

    monkeypatch.setattr("dibs.cli.prune.prune_for", prune_for)
    monkeypatch.setattr("dibs.cli.prune.TOLD_EVERY", 0.01)
    ended = dibs("prune", "--url", f"sqlite:///{tmp_path / 'dibs.db'}")
    assert (ended.out, ended.err) == ("pruned 3007\n", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ended = dibs("prune", "--url", f"sqlite:///{tmp_path / 'dibs.db'}")
    assert ended.out == "pruned 3007\n"
    assert ended.err.startswith("\r1,500 pruned\r3,000 pruned")


@pytest.mark.parametrize(
    ("queues", "meant"),
    [
        ((), None),
        (("a", "b"), ["a", "b"]),
        (("mail=3", "exports"), {"mail": 3, "exports": 1}),
        (("=3", "a=b"), ["=3", "a=b"]),
    ],
)
def test_queues_by_weight(queues: tuple[str, ...], meant: object) -> None:
    """QUEUE=3 is a weight, and then all have one; a name may have a sign of equality in it otherwise."""
    from dibs.cli.worker import weighed

    assert weighed(queues) == meant
