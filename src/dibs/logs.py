"""Log records that say of which job they are, and how a worker writes them: as text, or as JSON.

For a program that sets logging up itself: `JobFilter` on a handler, or these formatters.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from dibs.running import _current

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OF_A_JOB = "%(asctime)s %(levelname)s %(name)s [job %(dibs_job)s %(dibs_task)s]: %(message)s"
TIME = "%Y-%m-%d %H:%M:%S"

#: What a record says of its job: the id, the task's name, the queue, and which attempt it is. None outside of a run.
OF_JOBS = ("dibs_job", "dibs_task", "dibs_queue", "dibs_attempt")

#: What dibs puts on what it logs itself of a claim, from outside of its run; `JsonFormatter` writes it like the above.
CLAIM = "dibs_claim"

#: What every record has; all else was put there by `extra=` or by a filter.
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", CLAIM, *OF_JOBS}


def mark(record: logging.LogRecord) -> logging.LogRecord:
    """Set `dibs_job`, `dibs_task`, `dibs_queue` and `dibs_attempt` from the job that runs here; None outside of one."""
    job = _current.get(None)
    if job is None:
        record.dibs_job = record.dibs_task = record.dibs_queue = record.dibs_attempt = None
    else:
        record.dibs_job, record.dibs_task = job.id, job.task
        record.dibs_queue, record.dibs_attempt = job.queue, job.attempts
    return record


class _Marking:
    """Makes records as the factory before it does, and marks them."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        return mark(self._before(*args, **kwargs))


def mark_records() -> None:
    """Have each log record that this process makes from now on say of which job it is. A worker does it."""
    before = logging.getLogRecordFactory()
    if not isinstance(before, _Marking):
        logging.setLogRecordFactory(_Marking(before))


class JobFilter(logging.Filter):
    """Lets every record pass, and sees to it that a format may name `%(dibs_job)s` and the others: also before a worker
    has begun, and where none ever does."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "dibs_job"):
            mark(record)
        return True


class TextFormatter(logging.Formatter):
    """Lines for people, which name the job that a record is of."""

    def __init__(self) -> None:
        super().__init__(FORMAT, TIME)
        self._of_a_job = logging.PercentStyle(OF_A_JOB)

    def format(self, record: logging.LogRecord) -> str:
        # Whoever enqueues may have put into a name or an argument what steers the terminal of whoever reads.
        return escaped(super().format(record), keep="\n\t")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        of_a_job = getattr(record, "dibs_job", None) is not None
        return self._of_a_job.format(record) if of_a_job else super().formatMessage(record)


def escaped(text: str, *, keep: str) -> str:
    """Return a text with what can't be printed written as escapes, other than these characters."""
    if text.isprintable():
        return text
    return "".join(
        each if each in keep or each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


class JsonFormatter(logging.Formatter):
    """One JSON object on one line for each record: time, level, logger, message, process; its job, if it is of one; the
    exception and the stack as text; and what was given as `extra=`, under its own name."""

    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(self.fields(record)).decode()

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return what is written of a record: plain values that JSON can hold."""
        ours: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": plain(record.getMessage()),
            "process": record.process,
        }
        if (claim := getattr(record, CLAIM, None)) is not None:
            ours |= zip(OF_JOBS, (claim.id, claim.task, claim.queue, claim.attempts), strict=True)
        else:
            ours |= {name: value for name in OF_JOBS if (value := getattr(record, name, None)) is not None}
        if record.exc_info and record.exc_info[0] is not None:
            ours["exception"] = plain(self.formatException(record.exc_info))
        elif record.exc_text:
            ours["exception"] = plain(record.exc_text)
        if record.stack_info:
            ours["stack"] = plain(self.formatStack(record.stack_info))
        # A name that is taken gets a _, so that neither is lost.
        return ours | {f"{name}_" if name in ours else name: value for name, value in extras(record).items()}


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """Return what was put on a record beside the usual, as plain values."""
    return {
        plain(name): plain(value)
        for name, value in vars(record).items()
        if name not in _USUAL and not name.startswith("_")
    }


def plain(value: Any) -> Any:
    """Return a value as what JSON can hold; what it can't, as text. Never raises: a line of the log is not worth that."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is no UTF-8
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    try:
        built = msgspec.to_builtins(value, enc_hook=str, str_keys=True)
        return msgspec.json.decode(msgspec.json.encode(built))
    except Exception:  # noqa: BLE001 - somebody else's __str__, an odd key, a loop
        try:
            return plain(repr(value))
        except Exception:  # noqa: BLE001
            return f"({type(value).__name__})"
