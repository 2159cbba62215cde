"""What a worker does with a job of Django's own framework: the task's context, its signals, its kind of result."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from dibs.contrib.django import results
from dibs.contrib.django.standard import Status, TaskContext, TaskError, TaskResult, normalize_json, signals
from dibs.errors import Fail, InvalidArgument
from dibs.running import current_job
from dibs.states import FINAL
from dibs.stored import errors_of
from dibs.worker.verdicts import Raised, Rules, decide

if TYPE_CHECKING:
    from dibs.contrib.django.project import ProjectDibs


def register(app: ProjectDibs, standard: Any) -> None:
    """Make a task of dibs' of one of the framework's, under the path of its function."""
    from dibs.contrib.django.backend import backend_of

    backend = backend_of(standard)
    make = _async_runner if inspect.iscoroutinefunction(standard.func) else _runner
    runner = make(app, standard, backend)
    runner.standard = standard  # type: ignore[attr-defined]  # what `discovery.registered` looks for
    runner._dibs_check = _check_of(standard)  # type: ignore[attr-defined]
    options = {} if backend is None else backend.task_options
    app.task(name=standard.module_path, queue=standard.queue_name, priority=standard.priority, **options)(runner)


def _check_of(standard: Any) -> Callable[..., None]:
    """Return what refuses arguments that the function could not be called with: an older version's, or a newer one's."""
    signature = inspect.signature(standard.func)
    context = [None] if standard.takes_context else []

    def check(args: list[Any], kwargs: dict[str, Any]) -> None:
        try:
            signature.bind(*context, *args, **kwargs)
        except TypeError as error:
            raise InvalidArgument("", str(error)) from None

    return check


def _runner(app: ProjectDibs, standard: Any, backend: Any) -> Callable[..., Any]:
    def run(args: list[Any], kwargs: dict[str, Any]) -> Any:
        execution = Execution(app, standard, backend, args, kwargs)
        signals.task_started.send_robust(type(backend), task_result=execution.result)
        try:
            returned = execution.returned(standard.func(*execution.args, **kwargs))
        except BaseException as error:
            if execution.raised(error):
                signals.task_finished.send_robust(type(backend), task_result=execution.result)
            raise
        signals.task_finished.send_robust(type(backend), task_result=execution.result)
        return returned

    return run


def _async_runner(app: ProjectDibs, standard: Any, backend: Any) -> Callable[..., Any]:
    async def arun(args: list[Any], kwargs: dict[str, Any]) -> Any:
        execution = Execution(app, standard, backend, args, kwargs)
        await signals.task_started.asend_robust(type(backend), task_result=execution.result)
        try:
            returned = execution.returned(await standard.func(*execution.args, **kwargs))
        except BaseException as error:
            if execution.raised(error):
                await signals.task_finished.asend_robust(type(backend), task_result=execution.result)
            raise
        await signals.task_finished.asend_robust(type(backend), task_result=execution.result)
        return returned

    return arun


class Execution:
    """One run of one of the framework's tasks, and the result that its context and its signals carry."""

    def __init__(self, app: ProjectDibs, standard: Any, backend: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._app = app
        self._job = job = current_job()
        self._claim = claim = job._claim
        now = timezone.now()
        self.result = TaskResult(
            task=results.as_enqueued(standard, backend, queue=claim.queue, priority=claim.priority),
            id=str(job.id),
            status=Status.RUNNING,
            enqueued_at=results.moment(claim.created_at),
            started_at=now,
            finished_at=None,
            last_attempted_at=now,
            args=args,
            kwargs=kwargs,
            backend=backend.alias if backend is not None else standard.backend,
            errors=results.errors_of(errors_of(claim.errors)),
            worker_ids=results.worker_ids(claim.attempts, job._worker),
        )
        self.args = [TaskContext(task_result=self.result), *args] if standard.takes_context else args

    def returned(self, value: Any) -> Any:
        """Note what the function returned, as JSON has it. What is not JSON fails the job: trying again is no use."""
        try:
            value = normalize_json(value)
        except (TypeError, ValueError) as error:
            raise Fail("what it returned can't be stored") from error
        self._end(Status.SUCCESSFUL)
        object.__setattr__(self.result, "_return_value", value)
        return value

    def raised(self, error: BaseException) -> bool:
        """Note what the function raised; return whether the job ends with it."""
        if isinstance(error, asyncio.CancelledError):
            return False  # the worker stops, or a person wants it: not the task's doing
        options = self._app.tasks[self.result.task.module_path].options
        rules = Rules(options.backoff, self._app.max_releases, options.fail_on, options.retry_on)
        verdict = decide(self._claim, Raised(error), rules, ran=0.0, at="", dice=random.Random(0))
        if verdict.status not in FINAL:
            return False
        shown = error.__cause__ if isinstance(error, Fail) and error.__cause__ is not None else error
        kind = type(shown)
        self.result.errors.append(
            TaskError(
                exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                traceback="".join(format_exception(shown)),
            )
        )
        self._end(Status.FAILED)
        return True

    def _end(self, status: Any) -> None:
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "finished_at", timezone.now())
