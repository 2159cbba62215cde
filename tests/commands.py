"""The `dibs` command in a test's hands: called in this process, or as a process of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dibs
from dibs.cli.run import run

SOURCES = str(Path(dibs.__file__).parent.parent)

#: An app with one task of each temper. Its URL comes from the environment or --url.
JOBS = '''
"""The jobs of a shop."""

import time
from pathlib import Path

from dibs import Dibs

app = Dibs()


@app.task(name="add")
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(name="boom", max_attempts=1)
def boom() -> None:
    raise RuntimeError("the oven is cold")


@app.task(name="gate")
def gate(folder: str) -> int:
    """Say that it runs, and go on until it is told to."""
    Path(folder, "running").touch()
    while not Path(folder, "go on").exists():
        time.sleep(0.005)
    return 7
'''


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return msgspec.json.decode(self.out)


class Command:
    """Calls `dibs` in this process; what it prints is caught."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: object) -> Ended:
        self._capture.readouterr()
        logger = logging.getLogger("dibs")
        level = logger.level
        try:
            code = run([str(argument) for argument in arguments])
        finally:
            logger.setLevel(level)
        return Ended(code, *self._capture.readouterr())


def write_jobs(folder: Path, source: str = JOBS) -> str:
    """Write a module under a name that no other test has; return the name."""
    name = f"jobs_{uuid.uuid4().hex[:8]}"
    (folder / f"{name}.py").write_text(source)
    return name


def environment(url: str | None = None) -> dict[str, str]:
    """Return the environment of a process that runs these sources on this database."""
    variables = {name: value for name, value in os.environ.items() if not name.endswith("DATABASE_URL")}
    variables |= {"PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1"}
    return variables if url is None else variables | {"DIBS_DATABASE_URL": url}


def process(
    arguments: Sequence[str], folder: Path, *, url: str | None = None, before: str = "pass", timeout: float = 30
) -> Ended:
    """Run `dibs` as a process in a folder; `before` is code that runs before it."""
    code = f"import sys\n{before}\nfrom dibs.__main__ import main\nmain()"
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
