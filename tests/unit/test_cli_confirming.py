"""An order for many jobs at a terminal: it is asked for, watched, and interrupted."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commands import environment
from conftest import wait_for
from dibs import Dibs


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, folder: Path, url: str, *arguments: str, before: str = "pass") -> None:
        self._ours, theirs = pty.openpty()
        code = f"import sys\n{before}\nfrom dibs.__main__ import main\nmain()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=folder,
            env=environment(url) | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # The terminal is the session's own, so that Ctrl-C on it is a signal.
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.said = ""

    def read(self) -> str:
        with contextlib.suppress(OSError):  # nothing yet, or it has ended
            self.said += os.read(self._ours, 65_536).decode(errors="replace")
        return self.said

    def wait_for(self, text: str) -> None:
        wait_for(lambda: text in self.read(), what=text)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        wait_for(lambda: [self.read(), self.process.poll() is not None][-1], what="the end of the command")
        self.read()
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dibs]:
    """A queue with 2,500 jobs that wait."""
    app = Dibs(f"sqlite:///{tmp_path / 'jobs.db'}")
    task = app.task(name="t")(lambda: None)
    app.enqueue_many(task.call() for _ in range(2_500))
    yield app
    app.close()


@pytest.fixture
def terminal(app: Dibs, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*arguments: str, before: str = "pass") -> Terminal:
        made.append(Terminal(tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}", *arguments, before=before))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_person_is_asked(app: Dibs, terminal: Callable[..., Terminal]) -> None:
    """With the number and a few of the jobs; nothing is done at no, all of it at yes."""
    command = terminal("cancel", "--task", "t")
    command.wait_for("cancel 2,500 jobs? [y/N]")
    assert command.said.count("ready") == 5
    command.type("n\n")
    assert command.end() == 1
    assert "nothing was changed" in command.said
    assert app.counts() == {"default": {"ready": 2_500}}

    command = terminal("cancel", "--task", "t")
    command.wait_for("[y/N]")
    command.type("y\n")
    assert command.end() == 0
    assert "cancelled 2,500 jobs" in command.said
    assert "100%" in command.said
    assert app.counts() == {"default": {"cancelled": 2_500}}


#: Goes on with each transaction only when a file says so.
GATED = """
import os, time
from dibs.selections import Selection
batches = Selection._batches
def gated(self):
    for number, ids in enumerate(batches(self)):
        open(f"at {number}", "w").close()
        while number and not os.path.exists("go on"):
            time.sleep(0.005)
        yield ids
Selection._batches = gated
"""


def test_ctrl_c_ends_it_between_two_transactions(app: Dibs, terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    """What is done is done and told, the rest is as it was, and the same command goes on."""
    command = terminal("cancel", "--task", "t", "--yes", before=GATED)
    wait_for(lambda: (tmp_path / "at 1").exists(), what="the second transaction")
    command.type("\x03")
    command.wait_for("^C")
    (tmp_path / "go on").touch()
    assert command.end() == 130
    assert "cancelled 2,000 jobs" in command.said
    assert "interrupted: 500 jobs left as they were" in command.said
    assert app.counts() == {"default": {"ready": 500, "cancelled": 2_000}}
    assert app.cancel(task="t") != []
    assert app.counts() == {"default": {"cancelled": 2_500}}
