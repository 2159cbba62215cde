"""A contestant's program while it runs: told what to do, listened to, and ended in any case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from peers.install import Installation

#: Seconds that a program may take for anything: beyond it, it is stuck.
PATIENCE = 600.0
#: And to end, once it was told to stop, before it is killed.
TO_END = 15.0

TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A program did not do what it was asked to; the text has the last lines of what it wrote."""


class Process:
    """One program, from its start to its end. It ends with this process too: its standard input does."""

    def __init__(self, name: str, installation: Installation, asked: Mapping[str, Any]) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the program is
        self._popen = subprocess.Popen(
            [*installation.command, json.dumps({**asked, **installation.told})],
            env={**_plain_environment(), **installation.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            text=True,
        )
        self._told: SimpleQueue[tuple[float, dict[str, Any] | None]] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            at = time.perf_counter()
            with suppress(ValueError):  # a library of its own that prints
                self._told.put((at, json.loads(line)))
        self._told.put((time.perf_counter(), None))

    def heard(self, event: str, *, within: float = PATIENCE) -> tuple[float, dict[str, Any]]:
        """Wait until the program says this; return when it did, and all that it said."""
        end = time.monotonic() + within
        while True:
            try:
                at, told = self._told.get(timeout=max(end - time.monotonic(), 0.0))
            except Empty:
                raise Failed(f"{self.name} did not say {event!r} within {within:.0f} s\n{self._tail()}") from None
            if told is None:
                raise Failed(f"{self.name} ended before it said {event!r}\n{self._tail()}")
            if told.get("event") == event:
                return at, told

    def tell(self, word: str) -> float:
        """Say `go` or `stop`; return when."""
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which `heard` will find
            self._popen.stdin.write(f"{word}\n")
            self._popen.stdin.flush()
        return time.perf_counter()

    def wait(self) -> None:
        """Wait for a program that ends by itself; raise Failed if it fails."""
        try:
            code = self._popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} does not end\n{self._tail()}") from None
        if code:
            raise Failed(f"{self.name} ended with {code}\n{self._tail()}")

    def processor_time(self) -> float:
        """Return the seconds of processor time that it and its children have used."""
        return sum(_processor_time(pid) for pid in _tree(self._popen.pid))

    def _tail(self) -> str:
        self._errors.seek(0)
        return "\n".join(self._errors.read().decode(errors="replace").splitlines()[-15:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(subprocess.TimeoutExpired):
            if error is None:
                self._popen.wait(TO_END)
        # It leads its process group, and is not reaped before this: the number is surely its.
        if self._popen.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        self._reader.join()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._errors.close()


def _plain_environment() -> dict[str, str]:
    """Return our environment without what would lead a program to our own packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DIBS_", "VIRTUAL_"))}


def _tree(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    found = [pid]
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in tasks.read_text().split():
                found += _tree(int(child))
    return found


def _processor_time(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0
