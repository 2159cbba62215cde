"""Logs the jobs that a rollback took away, as far as that can be told: which task, which id, never the arguments."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger("dibs")

#: Ids in one line, at most; of more their number is said.
MOST_NAMED = 20

Written = tuple[int, str]


def note(connection: Any, jobs: Iterable[Written]) -> list[Written]:
    """Have it logged if the transaction that these jobs (id, task) were written in is rolled back.

    Returns those of which this connection will not tell. Costs a look at the logger where nobody reads such lines.
    """
    if not logger.isEnabledFor(logging.INFO):
        return []
    from dibs.bindings.rollbacks import watch

    written = list(jobs)
    try:
        return [] if not written or watch(connection, written, rolled_back) else written
    except Exception as error:  # noqa: BLE001 - the jobs are written, and that is what counts
        logger.debug("whether jobs are rolled back can't be told of this connection: %s", type(error).__name__)
        return []


def rolled_back(jobs: Iterable[Written]) -> None:
    """Log that these jobs are not there any more."""
    log(jobs, "rolled back with the transaction that enqueued it")


def log(jobs: Iterable[Written], what: str) -> None:
    """Log a line for each job, or for each task where there are many of it."""
    by_task: dict[str, list[int]] = defaultdict(list)
    for job_id, task in jobs:
        by_task[task].append(job_id)
    for task, ids in by_task.items():
        if len(ids) == 1:
            logger.info("job %d: %s: %s", ids[0], task, what)
        else:
            named = ", ".join(map(str, ids[:MOST_NAMED])) + (", …" if len(ids) > MOST_NAMED else "")
            logger.info("%d jobs of %s (%s): %s", len(ids), task, named, what)
