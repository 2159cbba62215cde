"""Progress: writes down how far running jobs say they are. In the fetcher's thread, about once a second.

What a task says is only kept in its run (`CurrentJob.progress`), so that a tight loop may say it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from dibs.errors import DatabaseError, DatabaseUnavailable, ReadOnlyDatabase, SchemaError
from dibs.store import Store
from dibs.worker.runs import Run
from dibs.worker.verdicts import note_of

logger = logging.getLogger("dibs")

#: How often (seconds) the progress of a running job is written, at most.
EVERY = 1.0


def write_progress(store: Store, runs: Iterable[Run], *, worker: str) -> None:
    """Write how far these runs are, where that is news. What can't be written now is news the next time."""
    news = {(run.claim.id, run.claim.claims): run for run in runs if run.progress is not run.written}
    if not news:
        return
    told = {claim: run.progress for claim, run in news.items()}
    texts = {claim: progress_text(run) for claim, run in news.items()}
    try:
        written = store.run(lambda: store.dialect.write_progress(texts, worker=worker))
    except (DatabaseUnavailable, ReadOnlyDatabase, SchemaError):
        raise
    except DatabaseError as error:  # about one of them; the work goes on without
        logger.warning("the progress of %d jobs could not be written: %s", len(news), error)
        written = {job_id for job_id, _ in news}
    for claim, run in news.items():
        if claim[0] in written:
            run.written = told[claim]


def progress_text(run: Run) -> str:
    """Return what the row says, which a person may read: the time is the database's."""
    progress = run.progress
    assert progress is not None
    entry = {
        "done": progress.done,
        "note": note_of(progress),
        "at": run.database_now(progress.at),
    }
    return msgspec.json.encode(entry).decode()
