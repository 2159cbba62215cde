"""What a server has to know about its database: one subclass per database, one object per version."""

from __future__ import annotations

import pwd
import re
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from servers.errors import StartFailed, Unavailable

#: What a server is started with: `{"binlog_format": "STATEMENT"}`.
Options = Mapping[str, str]


class Engine(ABC):
    """The programs of one version of a database."""

    kind: ClassVar[str]
    title: ClassVar[str]
    #: A clean end, and one that leaves the recovery to the next start.
    stop_signals: ClassVar[Mapping[str, signal.Signals]]
    #: How the watchdog ends it when the data is not needed any more.
    ending: ClassVar[signal.Signals]

    version: str
    source: str
    user: pwd.struct_passwd | None = None

    def __str__(self) -> str:
        return f"{self.title} {self.version}"

    @abstractmethod
    def template(self) -> Path:
        """Return an initialised data directory, to be copied."""

    @abstractmethod
    def command(self, place: Path, port: int, *, durable: bool, options: Options) -> list[str]:
        """Return the command line of a server whose data is in `place / "data"`."""

    def before_start(self, place: Path) -> None:  # noqa: B027
        """Clear away what a killed server would stumble over."""

    @abstractmethod
    def ready(self, place: Path, port: int, pid: int) -> bool:
        """Does the server accept connections?"""

    @abstractmethod
    def follow(self, place: Path, primary_port: int) -> Options:
        """Make the copied data in `place` a replica's; return the options that it needs."""

    #: Options of a primary each of whose commits is on its replica before it is answered, and of that replica.
    synchronous: ClassVar[tuple[Options, Options]]

    @abstractmethod
    def promote(self, place: Path, port: int, signal_it: Callable[[signal.Signals], None]) -> None:
        """Make a running replica a primary, with all that it has received; return when it takes writes."""

    #: A replica begins with the data of the stopped primary; else with none, and reads the whole log.
    replica_copies_primary: ClassVar[bool] = False

    @abstractmethod
    def url(self, port: int) -> str:
        """Return the URL of the all-powerful account, which has no password."""

    @abstractmethod
    def user_url(self, port: int) -> str:
        """Return the URL of an ordinary account, which has a password."""


def version_in(command: Sequence[str | Path], pattern: str, *, user: pwd.struct_passwd | None = None) -> str:
    """Return the version that a program says it has: the proof that it runs here."""
    program = Path(command[0]).name
    try:
        told = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60, **_as(user))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{program} does not run here: {error}") from error
    if not (found := re.search(pattern, told.stdout)):
        problem = (told.stderr or told.stdout).strip().splitlines() or ["it says nothing"]
        raise Unavailable(f"{program} does not run here: {problem[-1]}")
    return found[1]


def initialise(command: Sequence[str], *, user: pwd.struct_passwd | None = None, statements: str = "") -> None:
    """Run a program that makes a data directory, with `statements` as its input."""
    done = subprocess.run(
        command,
        input=statements.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/", "LC_ALL": "C"},
        **_as(user),
    )
    if done.returncode:
        said = done.stdout.decode(errors="replace").splitlines()[-15:]
        raise StartFailed("a data directory could not be made", "\n".join(said))


def _as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
