"""The same tests once for every version of every database, and a table of how they went."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers import running
from servers.catalogue import BEFORE, TITLES, VERSIONS
from servers.errors import Unavailable
from servers.places import cache, readable_folder

SQLITE = "sqlite"
COUNTS = ("passed", "failed", "skipped", "xfailed", "xpassed", "errors")


@dataclass(frozen=True)
class Row:
    """How it went on one database."""

    database: str
    outcome: str
    seconds: float
    good: bool = False
    missing: bool = False

    def __str__(self) -> str:
        return f"{self.database:<18} {self.outcome:<40} {self.seconds:>6.0f} s"


def run(targets: Sequence[str], seconds: float, command: Sequence[str]) -> int:
    """Run the command for each; return 1 if it failed on one of them.

    Its environment has the URL of that database alone, and its kind in DIBS_TEST_ONLY, so that the tests
    leave out the others.
    """
    rows = []
    for kind, version in wanted(targets):
        row = try_on(kind, version, seconds, command)
        print(row, flush=True)
        rows.append(row)
    good, missing = sum(row.good for row in rows), sum(row.missing for row in rows)
    failed = len(rows) - good - missing
    print(f"{good} good, {failed} not, {missing} not to be had here")
    return 1 if failed else 0


def wanted(targets: Sequence[str]) -> list[tuple[str, str]]:
    """Return what was asked for; by default everything there is.

    >>> wanted(["mariadb", "postgres@14"])
    [('mariadb', '10.11'), ('mariadb', '11.8'), ('postgres', '14')]
    """
    found: list[tuple[str, str]] = []
    databases = [kind for kind in VERSIONS if kind not in BEFORE]
    for target in targets or (*databases, SQLITE):
        kind, _, version = target.partition("@")
        if kind == SQLITE:
            found.append((SQLITE, sqlite3.sqlite_version))
        elif kind in databases:
            found += [(kind, each) for each in ([version] if version else VERSIONS[kind])]
        else:
            raise ValueError(f"no such database: {kind} ({', '.join((*databases, SQLITE))})")
    return found


def try_on(kind: str, version: str, seconds: float, command: Sequence[str]) -> Row:
    """Run the command on one database, for so long at most."""
    began = time.monotonic()
    title = f"{TITLES.get(kind, 'SQLite')} {version}"
    log = logs() / f"{kind}-{version}.log"
    try:
        with database(kind, version) as (title, urls), log.open("w") as output:
            done = subprocess.run(
                command,
                env=environment(kind, urls),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
    except Unavailable as unavailable:
        outcome = f"not to be had: {unavailable.reason.splitlines()[0]}"
        return Row(title, outcome, time.monotonic() - began, missing=True)
    except subprocess.TimeoutExpired:
        return Row(title, f"not done after {seconds:.0f} s: {log}", time.monotonic() - began)
    outcome = counts(log.read_text(errors="replace")) or f"exit code {done.returncode}"
    if done.returncode:
        outcome += f": {log}"
    return Row(title, outcome, time.monotonic() - began, good=done.returncode == 0)


@contextmanager
def database(kind: str, version: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Run it; SQLite is there already."""
    if kind == SQLITE:
        yield f"SQLite {version}", {}
        return
    with running(kind, version) as server:
        yield str(server.engine), {f"DIBS_TEST_{kind.upper()}_URL": server.url}


def environment(kind: str, urls: dict[str, str]) -> dict[str, str]:
    """Return ours, with no database in it but this one."""
    given = re.compile("DIBS_TEST_.*_URL")
    ours = {name: value for name, value in os.environ.items() if not given.fullmatch(name)}
    return ours | urls | {"DIBS_TEST_ONLY": kind}


def logs() -> Path:
    folder = cache() / "matrix"
    readable_folder(folder)
    return folder


def counts(output: str) -> str:
    """Return the counts of pytest's last line.

    >>> counts("....\\n4 passed, 1 skipped in 0.12s\\n")
    '4 passed, 1 skipped'
    """
    found = re.findall(rf"(\d+ (?:{'|'.join(COUNTS)}|error))\b", output.rstrip().rpartition("\n")[2])
    return ", ".join(found)
