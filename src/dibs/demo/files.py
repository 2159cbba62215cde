"""Which files the demo takes, and which job each becomes. Looks at the directory; changes nothing."""

from __future__ import annotations

import hashlib
import os
import stat
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dibs.limits import problem_with_text
from dibs.settings import LONGEST_KEY

#: Left out of the standard library: what Python writes by itself, and what isn't part of it.
NOT_THE_LIBRARY = frozenset({"__pycache__", "site-packages", "dist-packages"})

#: Files of this many bytes go first, so that no long job is left for the end.
BIG = 1_000_000

#: Characters of a file's name that its result's name keeps: with four bytes each it still is a legal name.
MOST_OF_NAME = 60


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it was when the demo began: absolute path, bytes, and when it was last changed."""

    path: str
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a directory, in order, and how many of what else was in it was skipped, by reason."""

    root: str
    files: list[Source]
    skipped: Counter[str]


@dataclass(frozen=True, slots=True)
class FileJob:
    """One file's job to be: its key, its source, and the path of its result."""

    key: str
    source: Source
    result: str


def standard_library() -> str:
    """Return where the standard library of the running Python is."""
    return sysconfig.get_path("stdlib")


def list_files(directory: str, *, without: Path, leave_out: frozenset[str] = frozenset()) -> Listing:
    """List the readable regular files in and below a directory, but not below `without`.

    Links are not followed, so none can lead in a circle. `leave_out` are names of directories.
    """
    root = os.path.realpath(directory)
    excluded = os.path.realpath(without)
    files: list[Source] = []
    skipped: Counter[str] = Counter()

    def unreadable(error: OSError) -> None:
        skipped["folders that can't be read"] += 1

    for folder, folders, names in os.walk(root, onerror=unreadable):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        skipped["links"] += len(links)
        folders[:] = sorted(
            name
            for name in folders
            if name not in links and name not in leave_out and os.path.join(folder, name) != excluded
        )
        for name in sorted(names):
            found = _look(os.path.join(folder, name))
            if isinstance(found, Source):
                files.append(found)
            else:
                skipped[found] += 1
    return Listing(root, files, +skipped)


def _look(path: str) -> Source | str:
    """Return the file at `path`, or why it is skipped."""
    try:
        found = os.lstat(path)
    except OSError:
        return "files that vanished"
    if stat.S_ISLNK(found.st_mode):
        return "links"
    if not stat.S_ISREG(found.st_mode):
        return "things that are no files (sockets, pipes, devices)"
    if problem_with_text(path):
        return "files whose names are not text (a job's arguments are JSON)"
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return "files that can't be read"
    return Source(path, found.st_size, found.st_mtime_ns)


def jobs_for(listing: Listing, results: Path, *, token: str) -> list[FileJob]:
    """Return the job of each file. `token` is this run's: no other run has the same keys.

    Results are numbered, so that none can have another's name, whatever the sources are called.
    """
    jobs = []
    for number, source in enumerate(sorted(listing.files, key=lambda source: source.size < BIG), start=1):
        key = f"{token}/{os.path.relpath(source.path, listing.root)}"
        if len(key) > LONGEST_KEY:
            key = f"{token}/sha256:{hashlib.sha256(source.path.encode()).hexdigest()}"
        name = os.path.basename(source.path)[:MOST_OF_NAME]
        jobs.append(FileJob(key, source, os.path.join(results, f"{number:06} {name}.bz2")))
    return jobs
