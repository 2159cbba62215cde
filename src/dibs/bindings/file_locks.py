"""Which processes have the queue's file open, and which of them writes: where the database is a file, only the system knows.

On Linux from /proc: the write lock of a file in WAL mode is a lock of one byte in the file beside it (`-shm`), and
/proc/locks has whose it is. Elsewhere nothing can be known. Of other users' processes only root sees which files they have.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from dibs.holders import Found, Session

PROC = Path("/proc")

#: The byte of the -shm file that whoever writes has locked (SQLite's WAL-index, WAL_WRITE_LOCK).
WRITE_BYTE = 120

_LOCK = re.compile(
    r"\d+: (?:-> )?\S+\s+\S+\s+(?P<mode>\w+)\s+(?P<pid>-?\d+)\s+\w+:\w+:(?P<inode>\d+)\s+(?P<first>\d+)\s+(?P<last>\w+)"
)


def openers(database: str) -> Found:
    """Return the process that writes to a file just now; and in a note, who else has it open."""
    file = Path(os.path.abspath(database))
    if not (PROC / "locks").exists():
        return Found(notes=["which process writes can't be known on this system: lsof shows who has the file open"])
    writers = _writers(file)
    others = sorted(set(_open_in(file)) - {os.getpid(), *writers})
    notes = [f"open in process{'es' * (len(others) > 1)} {', '.join(map(str, others))}, too"] if others else []
    return Found(sessions=[_process(pid) for pid in writers], notes=notes)


def _writers(file: Path) -> list[int]:
    try:
        inode = Path(f"{file}-shm").stat().st_ino
        lines = (PROC / "locks").read_text().splitlines()
    except OSError:
        return []
    found = set()
    for line in lines:
        lock = _LOCK.match(line)
        if lock and "->" not in line and int(lock["inode"]) == inode and lock["mode"] == "WRITE":
            last = int(lock["last"]) if lock["last"].isdigit() else WRITE_BYTE
            if int(lock["first"]) <= WRITE_BYTE <= last and int(lock["pid"]) > 0:
                found.add(int(lock["pid"]))
    return sorted(found)


def _open_in(file: Path) -> list[int]:
    wanted = {str(file), f"{file}-wal", f"{file}-shm"}
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it is gone, or somebody else's
                if any(os.readlink(each) in wanted for each in (folder / "fd").iterdir()):
                    found.append(int(folder.name))
    return found


def _process(pid: int) -> Session:
    state, command, user = "in a transaction that writes", None, None
    with suppress(OSError):
        command = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    with suppress(OSError, KeyError):
        import pwd

        user = pwd.getpwuid((PROC / str(pid)).stat().st_uid).pw_name
    stopped = _stopped(pid)
    if stopped:
        state = "stopped in the middle of a write"
    return Session(
        who=pid,
        kind="process",
        state=state,
        query=command,
        user=user,
        client="this machine",
        may_hold=True,
        ends_with=f"kill -CONT {pid} lets it go on, kill -KILL {pid} ends it" if stopped else f"kill {pid}",
    )


def _stopped(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def end_process(pid: int) -> bool:
    """End a process; one that is stopped does not hear anything milder than SIGKILL. Return False if there is none."""
    try:
        os.kill(pid, signal.SIGKILL if _stopped(pid) else signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True
