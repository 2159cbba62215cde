"""The output folder: what is where in it, and whose it is. Never touches a file that no demo has made."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

import click

from dibs.limits import problem_with_text

#: The file by which a later demo knows that the folder is one of a demo's. Locked while the demo runs.
MARK = "made-by-dibs-demo.txt"
MARK_TEXT = "This folder was made by `dibs demo`. The next demo that writes here empties it first.\n"


class Folder:
    """One demo's output."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.results = self.path / "results"
        self.unfinished = self.path / "unfinished"  # where a result is until it is whole
        self.runs = self.path / "runs"
        self.logs = self.path / "logs"
        self.database = self.path / "dibs.db"
        self._mark: IO[str] | None = None

    def take(self) -> None:
        """Make the folder, or empty that of an earlier demo. Raises ClickException when it is something else's."""
        if problem := problem_with_text(str(self.path)):
            raise click.ClickException(f"the path of the output folder {problem}: choose another with --out")
        mark = self.path / MARK
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not mark.exists() and any(self.path.iterdir()):
                raise click.ClickException(
                    f"{self.path} is not empty and was not made by a demo: choose another folder with --out"
                )
            self._mark = mark.open("a", encoding="utf-8")
            _lock(self._mark, self.path)
            self._empty()
            if mark.stat().st_size == 0:
                self._mark.write(MARK_TEXT)
                self._mark.flush()
            for folder in (self.results, self.unfinished, self.runs, self.logs):
                folder.mkdir()
        except OSError as error:
            raise click.ClickException(f"can't write to the output folder: {error}") from error

    def leave(self) -> None:
        """Let another demo have the folder."""
        if self._mark is not None:
            self._mark.close()

    def _empty(self) -> None:
        for folder in (self.results, self.unfinished, self.runs, self.logs):
            if folder.exists():
                shutil.rmtree(folder)
        for file in self.path.glob(f"{self.database.name}*"):
            file.unlink()

    def done(self) -> int:
        """Return how many results there are."""
        return len(os.listdir(self.results))


def default_path() -> Path:
    """Return `dibs-demo` in the current directory, or a new one for temporary files where that is not to be had."""
    if os.access(os.curdir, os.W_OK):
        return Path("dibs-demo")
    return Path(tempfile.mkdtemp(prefix="dibs-demo-"))


def _lock(mark: IO[str], path: Path) -> None:
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise click.ClickException(f"another demo is running in {path}: choose another folder with --out") from None
