"""The programs of `examples/` in a test's hands: run by their own commands, each on a database of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from commands import SOURCES, environment
from conftest import wait_for
from dibs import Dibs

EXAMPLES = Path(SOURCES).parent / "examples"


class Started:
    """A process of an example's. What it says goes to a file."""

    def __init__(self, command: list[str], folder: Path, variables: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until_it_says(self, words: str) -> None:
        def says() -> bool:
            assert words in self.log() or self.process.poll() is None, self.log()
            return words in self.log()

        wait_for(says, what=words)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, within: float = 15.0) -> int:
        """Send it a signal and return how it ended."""
        self.process.send_signal(number)
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {within:g} s:\n{self.log()}") from None

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


class Example:
    """One program of `examples/`, with the variables that it reads, and an app to look at its queue with."""

    def __init__(self, url: str, scheme: str, folder: Path) -> None:
        self.queue = Dibs(url)
        self.folder = folder
        self.home = EXAMPLES
        self.variables = environment() | {
            "DATABASE_URL": f"{scheme}{url[url.index('://') :]}",
            "EXPORTS": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.server: Started | None = None
        self._started: list[Started] = []

    def run(self, *command: str, code: int = 0) -> str:
        """Run a command to its end and return what it printed: to stdout, or to stderr where it is to fail."""
        ended = subprocess.run(
            [sys.executable, *command], cwd=self.home, env=self.variables, capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == code, f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return ended.stderr if code else ended.stdout

    def start(self, *command: str, **variables: str) -> Started:
        log = self.folder / f"log {len(self._started)}"
        started = Started(list(command), self.home, self.variables | variables, log)
        self._started.append(started)
        return started

    def worker(self, app: str, *options: str, **variables: str) -> Started:
        """Start `dibs worker`, and wait until it works."""
        started = self.start("-m", "dibs", "worker", app, *options, **variables)
        started.wait_until_it_says("works on")
        return started

    def serve(self, *command: str) -> Callable[..., Any]:
        """Start a web server, with its port as the last argument; return what asks it, once it answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = self.server = self.start(*command, str(port))

        def answers() -> bool:
            assert server.process.poll() is None, server.log()
            with socket.socket() as knock:
                return knock.connect_ex(("127.0.0.1", port)) == 0

        wait_for(answers, what="the server")
        return lambda path, body=None: ask(f"http://127.0.0.1:{port}{path}", body)

    def end(self) -> None:
        for started in self._started:
            started.end()
        self.queue.close()


def ask(url: str, body: Any = None) -> tuple[int, Any]:
    """Get a URL, or post JSON to it; return the status and the JSON of the answer, None where it is none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, None
