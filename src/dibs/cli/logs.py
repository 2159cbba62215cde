"""What a worker says: lines on stderr, unless the user's own code has set logging up already."""

from __future__ import annotations

import logging
from typing import Any

from dibs.cli.secrets import scrub
from dibs.logs import JsonFormatter, TextFormatter


class _Scrubbed(TextFormatter):
    """A line without the passwords that a driver or a traceback may have put into it."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


class _ScrubbedJson(JsonFormatter):
    """The same as JSON. Each text by itself: in the line passwords are escaped, and would not be recognised."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        return {name: _scrubbed(value) for name, value in super().fields(record).items()}


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list):
        return [_scrubbed(each) for each in value]
    return {name: _scrubbed(each) for name, each in value.items()} if isinstance(value, dict) else value


def log_to_stderr(level: int | None, *, form: str = "text") -> None:
    """Show the log from `level` on (None: INFO, or what the user's code has chosen for dibs), as text or as JSON."""
    root, ours = logging.getLogger(), logging.getLogger("dibs")
    theirs = bool(root.handlers)
    if not theirs:
        handler = logging.StreamHandler()
        handler.setFormatter(_ScrubbedJson() if form == "json" else _Scrubbed())
        root.addHandler(handler)
        root.setLevel(logging.INFO if level is None else level)
    if level is not None or ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO if level is None else level)
    if theirs and form == "json":
        logging.getLogger("dibs").warning(
            "--log-format json is not heeded, since the program has set logging up itself: "
            "give its handler a dibs.logs.JsonFormatter"
        )
