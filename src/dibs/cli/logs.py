"""What a worker says: lines on stderr, unless the user's own code has set logging up already."""

from __future__ import annotations

import logging

from dibs.cli.secrets import scrub

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TIME = "%Y-%m-%d %H:%M:%S"


class _Scrubbed(logging.Formatter):
    """A line without the passwords that a driver or a traceback may have put into it."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


def log_to_stderr(level: int | None) -> None:
    """Show the log from `level` on (None: INFO, or what the user's code has chosen for dibs)."""
    root, ours = logging.getLogger(), logging.getLogger("dibs")
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_Scrubbed(FORMAT, TIME))
        root.addHandler(handler)
        root.setLevel(logging.INFO if level is None else level)
    if level is not None or ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO if level is None else level)
