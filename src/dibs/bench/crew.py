"""Processes that work for the bench. They hear orders on stdin and answer on stdout, a line of JSON each.

When their stdin ends they end: also where the bench was killed and could tell nobody. Passwords are in the orders, so
no list of processes shows them.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, Self, TypeVar

import click
import msgspec

M = TypeVar("M")

#: Seconds in which a process whose stdin has ended must have ended, too.
GRACE = 5.0

#: Seconds until one must have said something, however slow the machine.
PATIENCE = 60.0

#: Not `-m`: that would look for every module in the current directory first, which may have a queue.py of its own.
PROGRAM = "import sys; sys.path.append(sys.argv[1]); from dibs.bench.{module} import main; main()"


class Crew(Generic[M]):
    """Processes that run `dibs.bench.<module>`, for a `with` statement. What they say is of the type `kind`."""

    def __init__(self, module: str, orders: Sequence[msgspec.Struct], kind: type[M]) -> None:
        """Each gets its orders as the first line."""
        self._module = module
        self._orders = orders
        self._kind = kind
        self._heard: queue.SimpleQueue[tuple[int, M | None]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._errors: list[IO[bytes]] = []

    def __len__(self) -> int:
        return len(self._orders)

    def __enter__(self) -> Self:
        program = PROGRAM.replace("{module}", self._module)
        home = str(Path(__file__).parents[2])
        try:
            for number, orders in enumerate(self._orders):
                errors = tempfile.TemporaryFile()  # closed in __exit__
                self._errors.append(errors)
                # In a session of its own: a Ctrl-C at the terminal is for the bench, which then ends them.
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", program, home],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
                self._processes.append(process)
                threading.Thread(target=self._listen, args=(number, process.stdout), daemon=True).start()
                self.tell(number, orders)
        except OSError as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise click.ClickException(f"a process can't be started: {error}") from error
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _listen(self, number: int, stdout: IO[bytes]) -> None:
        decoder = msgspec.json.Decoder(self._kind)
        for line in stdout:
            try:
                self._heard.put((number, decoder.decode(line)))
            except msgspec.DecodeError:
                continue  # a print of somebody's
        self._heard.put((number, None))

    def tell(self, number: int, message: Any) -> None:
        """Send one of them a line."""
        stdin = self._processes[number].stdin
        assert stdin is not None
        try:
            stdin.write(msgspec.json.encode(message) + b"\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it has died; `hear` says so

    def tell_all(self, message: Any) -> None:
        for number in range(len(self)):
            self.tell(number, message)

    def hear(self, timeout: float) -> tuple[int, M] | None:
        """Return what one of them said next, and which; None if none did in `timeout` seconds.

        Raises ClickException when one has died.
        """
        try:
            number, message = self._heard.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return None
        if message is None:
            raise click.ClickException(self._how_it_ended(number))
        return number, message

    def hear_all(self, *, beyond: float = 0.0) -> list[M]:
        """Return the next message of each, in their order; `beyond` seconds are none of its patience.

        Raises ClickException when one dies or says nothing.
        """
        said: dict[int, M] = {}
        end = time.monotonic() + PATIENCE + beyond
        while len(said) < len(self):
            heard = self.hear(end - time.monotonic())
            if heard is None:
                raise click.ClickException(f"a process of the bench has said nothing for {PATIENCE:.0f} s")
            said[heard[0]] = heard[1]
        return [said[number] for number in range(len(self))]

    def _how_it_ended(self, number: int) -> str:
        code = self._processes[number].wait(GRACE)
        self._errors[number].seek(0)
        lines = self._errors[number].read().decode(errors="replace").strip().splitlines()
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return f"a process of the bench ended by itself ({how})" + (f": {lines[-1].strip()}" if lines else "")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for process in self._processes:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            end = time.monotonic() + (GRACE if kind is None else GRACE / 5)
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(end - time.monotonic(), 0.0))
        finally:  # also at a second Ctrl-C
            for process in self._processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
            for errors in self._errors:
                errors.close()
