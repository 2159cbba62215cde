"""Our end of the line to a watchdog: ask it to start, signal or look after one server."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers.errors import StartFailed

WATCHDOG = Path(__file__).with_name("watchdog.py")


class Leash:
    """A watchdog, and the directory that it made. Both are gone after `close()`, and when this process is."""

    def __init__(self, base: Path, *, ending: signal.Signals) -> None:
        self._one_at_a_time = threading.Lock()
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WATCHDOG), str(base), str(int(ending)), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the run, which ends the servers when it is done
        )
        self.directory = Path(self._read()["directory"])
        self.log = self.directory / "log"

    def run(self, argv: Sequence[str], *, user: pwd.struct_passwd | None = None) -> None:
        """Run a short command to its end; raise StartFailed if it fails."""
        if code := self._ask(do="run", argv=list(argv), user=_ids(user))["code"]:
            raise StartFailed(f"{Path(argv[0]).name} ended with {code}", self.tail())

    def start(self, argv: Sequence[str], *, user: pwd.struct_passwd | None = None) -> int:
        """Start the server; return its pid."""
        pid: int = self._ask(do="start", argv=list(argv), user=_ids(user))["pid"]
        return pid

    def exit_code(self) -> int | None:
        """Return how the server ended; None while it runs."""
        code: int | None = self._ask(do="poll")["code"]
        return code

    def quiet(self) -> bool:
        """Has the server ended, and everything that it had started too?"""
        state = self._ask(do="poll")
        return state["code"] is not None and state["children"] == 0

    def signal(self, what: signal.Signals) -> None:
        """Send the server a signal, if it still runs."""
        self._ask(do="signal", signal=int(what))

    def end(self) -> None:
        """Kill the server and everything that it has started."""
        self._ask(do="end")

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of the server's log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        """End the server, remove its directory."""
        assert self._watchdog.stdin is not None
        with self._one_at_a_time:
            self._watchdog.stdin.close()
        self._watchdog.wait()

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._one_at_a_time:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.write(json.dumps(request).encode() + b"\n")
            self._watchdog.stdin.flush()
            return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._watchdog.stdout is not None
        line = self._watchdog.stdout.readline()
        if not line:
            raise StartFailed(f"the watchdog of a server ended with {self._watchdog.wait()}", "")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _ids(user: pwd.struct_passwd | None) -> list[int] | None:
    return [user.pw_uid, user.pw_gid] if user else None
