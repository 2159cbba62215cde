"""Random input for what reads input: it is taken, or refused in a sentence. No traceback, no hang, no secret shown.

Some hundred inputs; `scripts/fuzz` takes a hundred thousand.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import string
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import JOBS, write_jobs
from dibs import Dibs, DibsError, InvalidArgument
from dibs.cli.commands import COMMANDS
from dibs.cli.run import run
from dibs.codec import JsonCodec
from dibs.dialects import dialect_for, parse
from dibs.signatures import Signature

#: Inputs of all tests here together.
INPUTS = int(os.environ.get("DIBS_TEST_FUZZ_INPUTS", "600"))

#: How long (seconds) one input may take. Generous: a machine may be busy, a hang is not over after that.
PATIENCE = 20.0

#: The exit codes that docs/cli.md knows.
CODES = {0, 1, 2, 3, 4}


def share(part: float) -> settings:
    """Return hypothesis' settings for this part of all inputs."""
    return settings(
        max_examples=max(int(INPUTS * part), 1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        database=None,
    )


# -- the codec ---------------------------------------------------------------------------------------

everything = st.text(st.characters(), max_size=40)  # half surrogate pairs and control characters, too
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**300), 2**300)
    | st.floats()
    | everything
    | st.binary(max_size=20)
    | st.decimals()
    | st.dates()
    | st.datetimes()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.complex_numbers()
    | st.sampled_from([object(), len, Ellipsis, Path("x"), ValueError("x"), range(3), int])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(everything | st.integers() | st.none(), inner, max_size=4)
        | st.sets(st.integers() | everything, max_size=4)
        | st.lists(inner, max_size=2).map(iter)
    ),
    max_leaves=12,
)


def target(number: int, text: str = "", *, options: dict[str, Any] | None = None, **rest: Any) -> None: ...


@given(value=values)
@share(0.25)
def test_values(value: Any) -> None:
    """Any value is written as text that can be stored and comes back, or is refused by name."""
    codec = JsonCodec()
    try:
        text = codec.dump(value)
    except InvalidArgument as error:
        assert str(error)
        return
    stored = text.decode() if isinstance(text, bytes) else str(text)
    stored.encode()
    assert "\0" not in stored
    codec.load(stored, Any)


json_like = st.text(st.sampled_from('{}[]",:0123456789.eE+-ntfrualse\\ud8 \n\x00é😀'), max_size=60)


@given(payload=json_like | everything | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
@share(0.15)
def test_payloads(payload: str) -> None:
    """Any text in a payload is read as arguments, or refused: by whoever runs the job, since somebody wrote it."""
    signature = Signature(target, JsonCodec())
    with contextlib.suppress(InvalidArgument):
        args, kwargs = signature.load(payload)
        signature.bind(args, kwargs)


# -- URLs --------------------------------------------------------------------------------------------

SECRET = "hunter2hunter2"
parts = st.text(
    st.sampled_from(string.ascii_letters + string.digits + "@:/?#[]%&=+;,.-_ \\'\"\n\té\x00") | st.characters()
)
schemes = st.sampled_from(
    ["postgresql", "postgres", "mysql", "mariadb", "sqlite", "postgresql+asyncpg", "oracle", "", "x"]
)
urls = st.one_of(
    everything,
    st.builds(lambda scheme, rest: f"{scheme}://{rest}", schemes, parts),
    st.builds(
        lambda scheme, user, secret, host, path, query: f"{scheme}://{user}:{secret}@{host}/{path}?{query}",
        schemes,
        st.text(string.ascii_letters, max_size=5) | parts,
        st.just(SECRET),
        st.sampled_from(["localhost", "127.0.0.1:1", "[::1]:5", "a,b:3", "host:port", ""]) | parts,
        st.text(string.ascii_letters, max_size=5) | parts,
        st.sampled_from(["", "sslmode=require", "charset=latin1", "connect_timeout=x", "a=b&&=%zz"]) | parts,
    ),
)


@given(url=urls)
@share(0.35)
def test_urls(url: str) -> None:
    """Any text is a database's address, or a sentence says why not; neither shows a password."""
    try:
        address = parse(url)
        shown = f"{address} {address!r}"
        dialect_for(address)
        Dibs(url)
    except DibsError as error:
        shown = str(error)
        assert shown
        assert "\n" not in shown.strip()
    # A host that is called like the password may be shown; one that stands where a password does not.
    assert SECRET not in shown or not re.match(rf"[^:]*://[^:@/?#]*:{SECRET}\D*@", url)


# -- the command line ----------------------------------------------------------------------------------

#: Without those that run until they are stopped, or for seconds, or look at the processes of this machine.
QUICK = sorted(set(COMMANDS) - {"worker", "health", "bench", "verify", "demo"})
OPTIONS = (
    *(
        "--json",
        "--url",
        "-A",
        "--app",
        "--help",
        "--version",
        "--sql",
        "--yes",
        "--dry-run",
        "--limit",
        "--status",
        "--queue",
    ),
    *(
        "-q",
        "--task",
        "--error",
        "--since",
        "--until",
        "--key",
        "--reason",
        "--force",
        "--args",
        "--delay",
        "--priority",
    ),
    *("--", "-", "--no-such", "-x", "--limit=3", "--since=1h", "--status=done"),
)
words = st.one_of(
    st.sampled_from(QUICK),
    st.sampled_from(OPTIONS),
    st.sampled_from(
        [
            "1",
            "2",
            "0",
            "-1",
            "9" * 30,
            "add",
            "boom",
            "{module}",
            "{module}:app",
            "{module}:add",
            "os:path",
            "1h",
            "3d",
            "{}",
        ]
    ),
    st.sampled_from(
        ['{"a": 1}', '{"a": "x"}', "[", '{"a": 1e999}', "ready", "2026-01-01", "2026-01-01T00:00:00Z", "default"]
    ),
    everything.filter(lambda text: "\0" not in text),  # no command line can have one
    urls.filter(lambda text: "\0" not in text),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder with an app's module, and a queue on SQLite with some jobs in it; the name of the module."""
    folder = tmp_path_factory.mktemp("fuzz")
    module = write_jobs(folder, JOBS)
    before, environment = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ.update({"DIBS_DATABASE_URL": f"sqlite:///{folder / 'dibs.db'}", "DIBS_APP": f"{module}:app"})
    app = Dibs()
    add = app.task(name="add")(lambda a, b=1: a + b)
    for number in range(5):
        add.enqueue(a=number)
    app.close()
    yield module
    os.chdir(before)
    os.environ.clear()
    os.environ.update(environment)


class Terminal(io.TextIOWrapper):
    """What a command writes to."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)

    def text(self) -> str:
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined,no-any-return]


@given(first=st.sampled_from(QUICK) | words, rest=st.lists(words, max_size=6))
@share(0.25)
def test_command_lines(place: str, first: str, rest: list[str]) -> None:
    """Any command line ends soon, with an exit code that is documented; what went wrong is said in a line."""
    arguments = [word.replace("{module}", place) for word in (first, *rest)]
    if any(host in word for word in arguments for host in ("localhost", "127.0.0.1", "[::1]", "a,b")) or any(
        re.match(r"\s*(postgres|mysql|mariadb)", word, re.IGNORECASE) for word in arguments
    ):
        arguments = [re.sub(r"(?i)^(\s*)(postgres\w*|mysql|mariadb)[^:]*:", r"\1sqlite:", word) for word in arguments]
    out, err, began = Terminal(), Terminal(), time.monotonic()
    level = logging.getLogger("dibs").level
    environment = dict(os.environ)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(arguments)
    finally:
        logging.getLogger("dibs").setLevel(level)
        os.environ.clear()
        os.environ.update(environment)  # --url goes there
    assert code in CODES, (arguments, code)
    assert time.monotonic() - began < PATIENCE, arguments
    assert "Traceback" not in err.text(), (arguments, err.text())
    said = [line for line in err.text().splitlines() if line.startswith("dibs: ")]
    assert len(said) == (1 if code in (1, 2, 3, 4) and arguments else 0) or "Usage" in err.text(), (
        arguments,
        err.text(),
    )
    # Where it stands alone, or as a name, it is no password.
    elsewhere = re.sub(rf"://[^:@/]*:{SECRET}\S*@", "://", " ".join(arguments))
    assert SECRET in elsewhere or SECRET not in err.text() + out.text()
