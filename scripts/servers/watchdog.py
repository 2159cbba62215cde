"""The process between a run and one server: when the run ends, however it ends, so does the server.

It runs alone (`python -I -S watchdog.py BASE SIGNAL RUN`), imports nothing of this package, and has one
thread. It makes the server's directory, starts the server as its own child, and reads one JSON request a line
on stdin, answering each with one line on stdout. When stdin closes, or the process that started it is gone
(kill -9), it ends every descendant, removes the directory, and leaves.

- It is a subreaper: what a killed server leaves behind becomes its child, is reaped and can be ended.
- The kernel kills the server if the watchdog is killed. The directory then stays until the next watchdog on
  this machine starts, finds its lock free, and removes it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
IPC_RMID = 0
LIBC = ctypes.CDLL(None, use_errno=True)
# The run's own output stays the run's: a server writes into its log.
LOG = "log"


def make_directory(base: Path) -> tuple[Path, int]:
    """Make the server's directory, and lock it for as long as this process lives."""
    prefix = f"dibs-{os.getuid()}-"
    for left in base.glob(f"{prefix}*"):
        with suppress(OSError):  # no lock: one that is being made at this moment
            if left.lstat().st_uid != os.getuid():
                continue
            lock = os.open(left / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(left)
            finally:
                os.close(lock)
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    directory.chmod(0o711)  # a server that runs as `nobody` has to get to its data
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return directory, lock


def remove(directory: Path) -> None:
    """Remove a server's directory, and the piece of shared memory that a killed PostgreSQL leaves behind."""
    with suppress(OSError, IndexError, ValueError):
        key = int((directory / "data" / "postmaster.pid").read_text().splitlines()[6].split()[0])
        if (segment := LIBC.shmget(key, 0, 0)) >= 0:
            LIBC.shmctl(segment, IPC_RMID, None)
    shutil.rmtree(directory, ignore_errors=True)


def tell(answer: dict[str, Any]) -> None:
    os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")


class Watchdog:
    """One directory, and at most one server."""

    def __init__(self, base: Path, ending: int, run: int) -> None:
        self.ending = ending
        self.run = run
        self.directory, self.lock = make_directory(base)
        self.server: subprocess.Popen[bytes] | None = None

    def spawn(self, argv: list[str], *, user: list[int] | None) -> subprocess.Popen[bytes]:
        def die_with_us() -> None:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        whose: dict[str, Any] = {}
        if user:
            whose = {"user": user[0], "group": user[1], "extra_groups": []}
        with (self.directory / LOG).open("ab") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/", "LC_ALL": "C"},
                start_new_session=True,
                preexec_fn=die_with_us,  # after the change of user, which would undo it
                **whose,
            )

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do one thing."""
        match request["do"]:
            case "run":
                return {"code": self.spawn(request["argv"], user=request["user"]).wait()}
            case "start":
                self.server = self.spawn(request["argv"], user=request["user"])
                return {"pid": self.server.pid}
            case "poll":
                code = self.server.poll() if self.server else 0
                self.reap()
                return {"code": code, "children": len(self.children())}
            case "signal":
                # Only while it is unreaped is the pid surely the server's.
                if self.server and self.server.poll() is None:
                    self.server.send_signal(request["signal"])
                return {}
            case "end":
                self.end()
                return {}
        raise ValueError(request["do"])

    def children(self) -> list[int]:
        try:
            return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN
            return [self.server.pid] if self.server and self.server.poll() is None else []

    def reap(self) -> None:
        """Take leave of what a killed server left to us and has ended since."""
        for pid in self.children():
            if not (self.server and pid == self.server.pid):
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def end(self) -> None:
        """End the server and all that it started, the gentle way first if it has one."""
        if self.server and self.server.poll() is None:
            self.server.send_signal(self.ending)
            with suppress(subprocess.TimeoutExpired):
                self.server.wait(5)
        # Each round may bring us the children of those that it killed.
        while children := self.children():
            for pid in children:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.server:
                self.server.poll()
            self.reap()
            time.sleep(0.01)

    def serve(self) -> None:
        """Answer requests until the run is gone."""
        poll = select.poll()
        poll.register(sys.stdin.fileno(), select.POLLIN)
        # A process that the run forked may hold the pipe open after the run's end: watch the run itself too.
        run = os.pidfd_open(self.run)
        poll.register(run, select.POLLIN)
        waiting = b""
        while True:
            ready = dict(poll.poll())
            if run in ready:
                return
            if not (received := os.read(sys.stdin.fileno(), 65536)):
                return
            *lines, waiting = (waiting + received).split(b"\n")
            for line in lines:
                tell(self.answer(json.loads(line)))


def main() -> None:
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(name, lambda *_: sys.exit(1))
    watchdog = Watchdog(Path(sys.argv[1]), ending=int(sys.argv[2]), run=int(sys.argv[3]))
    try:
        tell({"directory": str(watchdog.directory)})
        watchdog.serve()
    finally:
        watchdog.end()
        remove(watchdog.directory)


if __name__ == "__main__":
    with suppress(BrokenPipeError, ProcessLookupError):  # the run ended before we had begun
        main()
