"""Where things live: downloads that are kept, directories that are thrown away, and who may read them.

PostgreSQL refuses to run as root, so as root it runs as `nobody`, who can't look into /root. Every
place that it needs is therefore chosen so that others can reach it.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.errors import Unavailable

# A Unix socket's path has at most 107 bytes, and /<our directory>/s goes behind this.
LONGEST_BASE = 60


def cache() -> Path:
    """Return the folder that downloads are kept in; make it where it is missing.

    `DIBS_CACHE` decides where it is set. Everything in it can be deleted at any time.
    """
    if chosen := os.environ.get("DIBS_CACHE"):
        return _ours(Path(chosen).absolute())
    shared = Path(f"/var/tmp/dibs-{os.getuid()}")
    if os.environ.get("XDG_CACHE_HOME"):
        home = Path(os.environ["XDG_CACHE_HOME"]).absolute()
    elif os.environ.get("HOME"):
        home = Path(os.environ["HOME"]).absolute() / ".cache"
    else:
        return _ours(shared)
    # Not folder.exists(), which raises where we may not even look.
    above = next(folder for folder in (home, *home.parents) if os.path.exists(folder))
    if not os.access(above, os.W_OK | os.X_OK) or (os.getuid() == 0 and not open_to_others(above)):
        return _ours(shared)
    return _ours(home / "dibs")


def _ours(folder: Path) -> Path:
    """Make the folder; refuse one that somebody else could have filled with their programs."""
    try:
        readable_folder(folder)
    except OSError as error:
        raise Unavailable(f"no place for downloads: {error}; set DIBS_CACHE to one") from error
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
        raise Unavailable(f"{folder} belongs to somebody else: remove it, or set DIBS_CACHE to another place")
    return folder.resolve()


def readable_folder(folder: Path) -> None:
    """Make a folder that others can read, whatever the umask is."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)


def open_to_others(folder: Path) -> bool:
    """Can a user who owns none of it walk down to this folder and read it?"""
    folder = folder.resolve()
    walkable = all(above.stat().st_mode & stat.S_IXOTH for above in folder.parents)
    return walkable and folder.stat().st_mode & 0o005 == 0o005


def throwaway_base(*, durable: bool) -> Path:
    """Return where a server's directory goes. A durable one avoids /tmp, which may be memory."""
    disk, usual = Path("/var/tmp"), Path("/tmp")
    candidates = [disk, usual] if durable else [Path(tempfile.gettempdir()), usual, disk]
    for base in candidates:
        fits = len(os.fsencode(base)) <= LONGEST_BASE and os.access(base, os.W_OK | os.X_OK)
        if fits and (os.getuid() != 0 or open_to_others(base)):
            return base
    raise Unavailable(f"no temporary folder with a short path: tried {', '.join(map(str, candidates))}")


def unprivileged() -> pwd.struct_passwd | None:
    """Return who runs what refuses to run as root; None: we are not root ourselves."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise Unavailable("PostgreSQL does not run as root, and there is no `nobody` to run it as") from None


def give(tree: Path, owner: pwd.struct_passwd) -> None:
    """Make all of a tree somebody's."""
    os.chown(tree, owner.pw_uid, owner.pw_gid)
    for folder, folders, files in os.walk(tree):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), owner.pw_uid, owner.pw_gid, follow_symlinks=False)


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder, made by `make` unless it was made before, by us or by another process.

    It appears under its name when it is complete, so a run that was killed leaves nothing half-done to trust.
    """
    if folder.exists():
        return folder
    readable_folder(folder.parent)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if folder.exists():
            return folder
        unfinished = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        readable_folder(unfinished)
        try:
            make(unfinished)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, which ends with the process in any case."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
