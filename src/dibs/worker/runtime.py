"""The runtime directory: each worker that `dibs worker` runs has a socket there, at which `dibs health` asks whether it
is live. No network, no port, no file that must be written again and again; a worker that hangs does not answer.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dibs.worker.health import Answer
from dibs.worker.probes import Ask

logger = logging.getLogger("dibs")

#: Where the sockets are, instead of the usual place.
VARIABLE = "DIBS_RUNTIME_DIR"

#: How long (seconds) the worker waits for a question. Who asks says how long an answer may take.
PATIENCE = 1.0

_NAME = re.compile(r"worker-(\d+)-\w+\.sock")


def folder() -> Path:
    """Return the directory for this user's sockets; it need not be there."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session and os.path.isdir(session):
        return Path(session) / "dibs"
    return Path(tempfile.gettempdir()) / f"dibs-{os.getuid()}"


class Door:
    """A worker's socket in the runtime directory."""

    def __init__(self, ask: Ask) -> None:
        """Open it. Where that can't be done it is said, and the worker works without."""
        self._ask = ask
        self._path: Path | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path = (
                folder() / f"worker-{os.getpid()}-{secrets.token_hex(3)}.sock"
            )  # there may be none that can be written to
            _make(path.parent)
            unheard = path.with_name(f".{path.name}")  # nobody finds it before it listens, and takes it for a dead one
            self._socket.bind(str(unheard))
            self._socket.listen(16)
            unheard.rename(path)
        except OSError as error:
            logger.info("`dibs health` can't ask this worker, set %s to a directory for it: %s", VARIABLE, error)
            self._socket.close()
            return
        self._path = path
        threading.Thread(target=self._serve, name="dibs-door", daemon=True).start()

    def close(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, where closing alone does not
            self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                asker, _ = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0 or self._path is None or not self._path.exists():
                    return
                time.sleep(0.1)  # out of descriptors, for a moment
                continue
            with suppress(Exception), asker:  # whoever it is, the next one is to be answered
                asker.settimeout(PATIENCE)
                question = asker.recv(64).decode("ascii", "replace").strip()
                asker.sendall(json.dumps(self._ask(question)).encode() + b"\n")


class Found(NamedTuple):
    """A worker's socket that was found, and the process that it says it is of."""

    process: int
    path: Path


def workers(processes: Sequence[int] | None = None) -> list[Found]:
    """Return the sockets of workers (of these processes), of living ones and of those that could not tidy up."""
    try:
        paths = sorted(folder().iterdir())
    except OSError:
        return []
    found = [Found(int(match[1]), path) for path in paths if (match := _NAME.fullmatch(path.name))]
    return [each for each in found if processes is None or each.process in processes]


def ask(found: Found, question: str, *, within: float) -> Answer | None:
    """Ask a worker "livez" or "readyz". None if it is no more; one that does not answer in time (seconds) is not live."""
    end = time.monotonic() + within
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(within)
        try:
            asker.connect(str(found.path))
            asker.sendall(f"{question}\n".encode())
            answer = b""
            while not answer.endswith(b"\n"):
                asker.settimeout(max(end - time.monotonic(), 0.001))
                if not (more := asker.recv(65_536)):
                    raise ConnectionResetError
                answer += more
            ok, reason, facts = json.loads(answer)
            return Answer(ok, reason, facts)
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(OSError):
                found.path.unlink()  # its worker was killed
            return None
        except ConnectionError:
            return None  # it ended just now
        except (TimeoutError, BlockingIOError):
            return Answer(False, f"it has not answered within {within:g} s", {})
        except (OSError, ValueError) as error:
            return Answer(False, f"it can't be asked: {error}", {})


def _make(path: Path) -> None:
    """Make the directory. In the one for everybody's temporary files, refuse what somebody else has made."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if VARIABLE not in os.environ and (not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid()):
        raise PermissionError(f"{path} is not a directory of this user's")
