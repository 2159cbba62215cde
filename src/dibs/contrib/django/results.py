"""A job's row as the result that Django's own framework wants."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from dibs.contrib.django.models import Job
from dibs.contrib.django.standard import InvalidTask, Status, TaskError, TaskResult
from dibs.states import State
from dibs.tracebacks import raised_in

#: A cancelled job has not done its work: to the framework, which knows no such state, it has failed.
STATUSES = {
    State.READY: Status.READY,
    State.RUNNING: Status.RUNNING,
    State.DONE: Status.SUCCESSFUL,
    State.FAILED: Status.FAILED,
    State.CANCELLED: Status.FAILED,
}

#: What stands for a worker of an earlier attempt: the row keeps the name of the last one.
EARLIER = "earlier"

_SIGNAL = "dibs.errors.Fail"


def result_of(job: Job, task: Any, backend: Any) -> Any:
    """Return the result for a row that was written for this task."""
    state = State(job.status)
    last = job.errors[-1] if job.errors else {}
    result = TaskResult(
        task=as_enqueued(task, backend, queue=job.queue, priority=job.priority),
        id=str(job.pk),
        status=STATUSES[state],
        enqueued_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.started_at or _parsed(last.get("at")),
        args=job.payload["args"],
        kwargs=job.payload["kwargs"],
        backend=backend.alias,
        errors=errors_of(job.errors or []),
        worker_ids=worker_ids(job.attempts, job.lease_owner),
    )
    if state is State.CANCELLED or (state is State.FAILED and not result.errors):
        kind = "JobCancelled" if state is State.CANCELLED else "JobFailed"
        result.errors.append(TaskError(exception_class_path=f"dibs.errors.{kind}", traceback=job.error or ""))
    if state is State.DONE:
        object.__setattr__(result, "_return_value", job.result)
    return result


def as_enqueued(task: Any, backend: Any, *, queue: str, priority: int) -> Any:
    """Return a task with the options that one of its jobs was enqueued with."""
    changes = {"queue_name": queue, "priority": priority, "backend": None if backend is None else backend.alias}
    if all(value in (None, getattr(task, name)) for name, value in changes.items()):
        return task
    try:
        return task.using(**changes)
    except InvalidTask:  # the settings allowed it then, and do not now
        return task


def errors_of(kept: Iterable[dict[str, Any]]) -> list[Any]:
    """Return the errors that a row keeps, as the framework has them. That arguments did not fit yet is none of them."""
    texts = [str(entry.get("error", "")) for entry in kept if "misfits" not in entry]
    return [TaskError(exception_class_path=class_path(text), traceback=text) for text in texts]


def worker_ids(attempts: int, last: str | None) -> list[str]:
    """Return one name for each attempt, since their number is what the framework counts attempts by."""
    return [EARLIER] * (attempts - 1) + [last or EARLIER] if attempts else []


def class_path(text: str) -> str:
    """Return the path of the exception that a traceback ends with.

    >>> class_path("Traceback (most recent call last):\\n  File …\\nshop.errors.Declined: card\\nof nobody")
    'shop.errors.Declined'
    """
    found = [_path(name) for name, _ in raised_in(text)]
    paths = [path for path in found if path and path != _SIGNAL] or [path for path in found if path]
    if paths:
        return paths[-1]
    return "builtins.TimeoutError" if text.startswith("timed out") else "dibs.errors.JobFailed"


def _path(name: str) -> str | None:
    return name if "." in name else f"builtins.{name}" if hasattr(builtins, name) else None


def moment(value: datetime | None) -> datetime | None:
    """Return a time as the project's own are: aware, or under USE_TZ = False naive."""
    if value is None or settings.USE_TZ:
        return value
    return timezone.make_naive(value, timezone.get_default_timezone())  # type: ignore[no-any-return]


def _parsed(text: str | None) -> datetime | None:
    return moment(datetime.fromisoformat(text)) if text else None
