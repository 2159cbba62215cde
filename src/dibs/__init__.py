"""dibs: call dibs on a row. A durable job queue that lives in the database you already have."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers read it; `typing` itself takes 7 ms of a process's first moment
if TYPE_CHECKING:
    from typing import Any

    from dibs.app import Dibs as Dibs
    from dibs.codec import Codec as Codec
    from dibs.codec import JsonCodec as JsonCodec
    from dibs.errors import AutocommitConnection as AutocommitConnection
    from dibs.errors import Cancel as Cancel
    from dibs.errors import CodeTooOld as CodeTooOld
    from dibs.errors import ConfigurationError as ConfigurationError
    from dibs.errors import DatabaseError as DatabaseError
    from dibs.errors import DatabaseUnavailable as DatabaseUnavailable
    from dibs.errors import DibsError as DibsError
    from dibs.errors import Fail as Fail
    from dibs.errors import InvalidArgument as InvalidArgument
    from dibs.errors import JobCancelled as JobCancelled
    from dibs.errors import JobFailed as JobFailed
    from dibs.errors import JobNotFound as JobNotFound
    from dibs.errors import KeyTaken as KeyTaken
    from dibs.errors import LostClaim as LostClaim
    from dibs.errors import MissingPrivilege as MissingPrivilege
    from dibs.errors import OutcomeUnknown as OutcomeUnknown
    from dibs.errors import ReadOnlyDatabase as ReadOnlyDatabase
    from dibs.errors import Release as Release
    from dibs.errors import Retry as Retry
    from dibs.errors import SchemaError as SchemaError
    from dibs.errors import StillRunning as StillRunning
    from dibs.errors import UnsuitableDatabase as UnsuitableDatabase
    from dibs.errors import UnsupportedConnection as UnsupportedConnection
    from dibs.events import Event as Event
    from dibs.holders import LockHolder as LockHolder
    from dibs.holders import LockReport as LockReport
    from dibs.hooks import Draft as Draft
    from dibs.jobs import JobRecord as JobRecord
    from dibs.register import WorkerRecord as WorkerRecord
    from dibs.registry import Tasks as Tasks
    from dibs.retries import Backoff as Backoff
    from dibs.running import CurrentJob as CurrentJob
    from dibs.running import current_job as current_job
    from dibs.secrets import Secret as Secret
    from dibs.states import State as State
    from dibs.tasks import Job as Job
    from dibs.tasks import Task as Task
    from dibs.why import Reason as Reason
    from dibs.why import Why as Why
    from dibs.worker.worker import Worker as Worker

__version__ = "0.1.0"

# Each name is imported when it is first asked for: the command line heeds a signal from its first moment, and
# must not spend that moment importing what it may not need.
_HOMES = {
    "app": ["Dibs"],
    "codec": ["Codec", "JsonCodec"],
    "errors": [
        "AutocommitConnection",
        "Cancel",
        "CodeTooOld",
        "ConfigurationError",
        "DatabaseError",
        "DatabaseUnavailable",
        "DibsError",
        "Fail",
        "InvalidArgument",
        "JobCancelled",
        "JobFailed",
        "JobNotFound",
        "KeyTaken",
        "LostClaim",
        "MissingPrivilege",
        "OutcomeUnknown",
        "ReadOnlyDatabase",
        "Release",
        "Retry",
        "SchemaError",
        "StillRunning",
        "UnsuitableDatabase",
        "UnsupportedConnection",
    ],
    "events": ["Event"],
    "hooks": ["Draft"],
    "jobs": ["JobRecord"],
    "holders": ["LockHolder", "LockReport"],
    "register": ["WorkerRecord"],
    "registry": ["Tasks"],
    "retries": ["Backoff"],
    "running": ["CurrentJob", "current_job"],
    "secrets": ["Secret"],
    "states": ["State"],
    "tasks": ["Job", "Task"],
    "why": ["Reason", "Why"],
    "worker.worker": ["Worker"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if (home := _HOME_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
