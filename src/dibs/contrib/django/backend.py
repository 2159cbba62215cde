"""A backend for Django's own framework: jobs of dibs under `@task`, `.enqueue()` and `.get_result()`.

TASKS = {"default": {"BACKEND": "dibs.contrib.django.backend.DibsBackend", "QUEUES": [], "OPTIONS": {"max_attempts": 3}}}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from dibs.contrib.django import app, discovery
from dibs.contrib.django.standard import (
    BaseTaskBackend,
    InvalidTask,
    Status,
    TaskResult,
    TaskResultDoesNotExist,
    signals,
    task_backends,
)
from dibs.settings import Options

#: What OPTIONS may have: of one enqueue, and of every run.
_OF_ENQUEUE = ("max_attempts", "retention")
_OF_RUNS = ("timeout", "backoff", "retry_on", "fail_on")


class DibsBackend(BaseTaskBackend):
    """Enqueues on the connection of the current `atomic()`; the jobs are run by `manage.py dibs worker`."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if odd := set(self.options) - {*_OF_ENQUEUE, *_OF_RUNS}:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]['OPTIONS'] has no {', '.join(sorted(odd))}: it may have "
                f"{', '.join([*_OF_ENQUEUE, *_OF_RUNS])}"
            )
        Options().changed(**self.options)

    @property
    def task_options(self) -> dict[str, Any]:
        """The options that tasks of this backend are registered with."""
        return dict(self.options)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Write a job; inside `atomic()` it is there when, and if, that is committed."""
        self.validate_task(task)
        if discovery.registered(app, task.module_path) is None:
            raise InvalidTask(
                f"no worker would find {task.module_path}: declare it in the tasks.py of an installed app, "
                'or name its module in DIBS["IMPORTS"]'
            )
        result = TaskResult(
            task=task,
            id="",
            status=Status.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        run_at = task.run_after
        if run_at is not None and timezone.is_naive(run_at):
            run_at = timezone.make_aware(run_at, timezone.get_default_timezone())
        job = (
            app.tasks[task.module_path]
            .using(
                queue=task.queue_name,
                priority=int(task.priority),
                run_at=run_at,
                **{name: self.options[name] for name in _OF_ENQUEUE if name in self.options},
            )
            .enqueue(args=result.args, kwargs=result.kwargs)
        )
        object.__setattr__(result, "id", str(job.id))
        object.__setattr__(result, "enqueued_at", timezone.now())
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Look a job up on Django's own connection."""
        from dibs.contrib.django.models import Job
        from dibs.contrib.django.results import result_of

        job = Job.objects.filter(pk=result_id).first() if _is_id(result_id) else None
        task = None if job is None else discovery.registered(app, job.task)
        if job is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(job, task, self)

    def check(self, **kwargs: Any) -> Iterable[Any]:
        """Say what is missing, for `manage.py check`."""
        yield from super().check(**kwargs)
        if not apps.is_installed("dibs.contrib.django"):
            yield checks.Error(
                f"TASKS[{self.alias!r}] has its jobs in dibs, whose app is not installed.",
                hint='Put "dibs.contrib.django" into INSTALLED_APPS.',
                id="dibs.E004",
            )


def _is_id(text: Any) -> bool:
    text = str(text)
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63


def backend_of(task: Any) -> DibsBackend | None:
    """Return the backend of ours that a task belongs to: that of its alias, else the first there is."""
    for alias in (task.backend, *task_backends):
        backend = task_backends[alias]
        if isinstance(backend, DibsBackend):
            return backend
    return None
