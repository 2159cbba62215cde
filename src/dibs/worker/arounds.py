"""Calls a task's function inside the hooks of `@app.around` and `@tasks.around`: the app's outside, each in the
order in which they were registered.

What a hook may do to its run: before the yield it fails it with an ordinary exception; after the yield it may
answer an exception of the task's with a signal. All else it raises is logged, and swallows nothing.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Coroutine
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

from dibs.errors import Signal
from dibs.hooks import Around
from dibs.running import CurrentJob
from dibs.tasks import Task
from dibs.worker.scrubbing import scrub_of

logger = logging.getLogger("dibs")


def call(task: Task[Any, Any], job: CurrentJob, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a sync task's function inside the sync hooks."""
    hooks = _hooks(task)
    if not hooks:
        return task.function(*args, **kwargs)
    with ExitStack[None]() as stack:
        for hook in hooks:
            if not hook.is_async:
                manager = hook.make(job)
                manager.__enter__()
                stack.push(partial(_left, hook, task, job, manager))
        return task.function(*args, **kwargs)


def acall(
    task: Task[Any, Any], job: CurrentJob, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Return the coroutine that runs an async task's function inside all hooks."""
    hooks = _hooks(task)
    coroutine: Coroutine[Any, Any, Any] = (
        _inside(hooks, task, job, args, kwargs) if hooks else task.function(*args, **kwargs)
    )
    return coroutine


async def _inside(
    hooks: list[Around], task: Task[Any, Any], job: CurrentJob, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    async with AsyncExitStack[None]() as stack:
        for hook in hooks:
            manager = hook.make(job)
            if hook.is_async:
                await manager.__aenter__()
                stack.push_async_exit(partial(_aleft, hook, task, job, manager))
            else:
                manager.__enter__()
                stack.push(partial(_left, hook, task, job, manager))
        return await task.function(*args, **kwargs)


def _hooks(task: Task[Any, Any]) -> list[Around]:
    everywhere, own = task.app.arounds, task.arounds
    return everywhere if own is everywhere or not own else everywhere + own


def _left(hook: Around, task: Task[Any, Any], job: CurrentJob, manager: Any, *raised: Any) -> bool:
    try:
        swallowed = manager.__exit__(*raised)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the run is over and its outcome stands
        return _judge(hook, task, job, raised[1], error)
    return _judge(hook, task, job, raised[1], None, swallowed=bool(swallowed))


async def _aleft(hook: Around, task: Task[Any, Any], job: CurrentJob, manager: Any, *raised: Any) -> bool:
    try:
        swallowed = await manager.__aexit__(*raised)
    except BaseException as error:  # noqa: BLE001 - as in `_left`; a run that returned is done also if it is cancelled now
        return _judge(hook, task, job, raised[1], error)
    return _judge(hook, task, job, raised[1], None, swallowed=bool(swallowed))


def _judge(
    hook: Around,
    task: Task[Any, Any],
    job: CurrentJob,
    of_task: BaseException | None,
    of_hook: BaseException | None,
    *,
    swallowed: bool = False,
) -> bool:
    """Raise the hook's signal in the place of the task's exception; return False, since nothing is swallowed."""
    if swallowed:
        logger.warning("job %d: %s swallows no exception: raise a signal to steer the job", job.id, hook.name)
    if of_hook is None or of_hook is of_task:
        return False
    if of_task is not None and isinstance(of_hook, Signal):
        raise of_hook
    trace = traceback.format_exception(type(of_hook), of_hook, of_hook.__traceback__, chain=False)
    scrub = scrub_of(task, job._claim)
    text = "".join(trace) if scrub is None else scrub("".join(trace))
    logger.error("job %d: %s met an error after the run, whose outcome stands: %s", job.id, hook.name, text)
    return False
