"""From what a worker does with jobs to the events that its app's handlers are told of.

Called with what the database has said already. Costs a look into an empty dict where nobody listens.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dibs.app import Dibs
from dibs.errors import DatabaseError
from dibs.events import Event, EventName, meta_from
from dibs.jobs import Expired, Settled, Verdict
from dibs.states import State
from dibs.store import Store
from dibs.worker.runs import Run

#: What may be told of a settled run; whether it was cancelled meanwhile only its row knows.
ENDS: frozenset[EventName] = frozenset({"done", "retried", "failed", "cancelled", "released"})


def tell(app: Dibs, name: EventName, run: Run, *, worker: str, **facts: Any) -> None:
    """Tell something about a run, if somebody listens."""
    if name not in app.events.handlers:
        return
    claim = run.claim
    app.events.tell(
        Event(
            name=name,
            job_id=claim.id,
            task=claim.task,
            queue=claim.queue,
            attempts=facts.pop("attempts", claim.attempts),
            max_attempts=claim.max_attempts,
            key=claim.task_key,
            worker=worker,
            meta=meta_from(claim.meta),
            at=datetime.fromisoformat(run.database_now()),
            **facts,
        )
    )


def tell_settled(app: Dibs, store: Store, entry: Sequence[tuple[Run, Verdict, Settled]], *, worker: str) -> None:
    """Tell what became of runs, in the order in which they were settled."""
    if not app.events.handlers:
        return
    cancelled: dict[int, str | None] = {}
    if not ENDS.isdisjoint(app.events.handlers):
        settled = [verdict.id for _, verdict, answer in entry if answer in (Settled.NOW, Settled.ALREADY)]
        try:
            cancelled = store.run(lambda: app.dialect.cancelled(settled)) if settled else {}
        except DatabaseError:
            cancelled = {verdict.id: verdict.error for run, verdict, _ in entry if run.cancelling}
    tell_ends(app, cancelled, entry, worker=worker)


def tell_ends(
    app: Dibs, cancelled: dict[int, str | None], entry: Sequence[tuple[Run, Verdict, Settled]], *, worker: str
) -> None:
    """Tell what became of runs, of which these jobs are `cancelled` for a reason, whatever the verdicts say."""
    for run, verdict, answer in entry:
        if answer is Settled.LOST and not run.known_lost:
            tell(app, "lost", run, worker=worker, error=run.lost_to, ran=run.ran())
        elif answer in (Settled.NOW, Settled.ALREADY) and run.begun is not None:
            name = "cancelled" if verdict.id in cancelled else end_of(run, verdict, answer)
            failed = name in ("failed", "retried")
            tell(
                app,
                name,
                run,
                worker=worker,
                attempts=verdict.attempts,
                error=None if name == "done" else cancelled.get(verdict.id, verdict.error),
                exception=run.exception if failed else None,
                delay=verdict.delay if name in ("retried", "released") else None,
                ran=run.ran(),
            )


def end_of(run: Run, verdict: Verdict, answer: Settled) -> EventName:
    """Return how a run has ended, as far as its worker knows."""
    if answer is Settled.LOST:
        return "lost"
    if run.finished and answer is Settled.ALREADY:
        return "done"  # by the task itself, in a transaction of its own
    if verdict.status is State.READY:
        return "retried" if verdict.error and not run.misfit else "released"
    if verdict.status is State.FAILED:
        return "failed"
    return "cancelled" if verdict.status is State.CANCELLED else "done"


def tell_expired(app: Dibs, job: Expired) -> None:
    """Tell of a claim that was taken back, and of the job's end where that was its last."""
    names: list[EventName] = ["expired"]
    if job.status is not State.READY:
        names.append("failed" if job.status is State.FAILED else "cancelled")
    for name in names:
        if name in app.events.handlers:
            app.events.tell(
                Event(
                    name=name,
                    job_id=job.id,
                    task=job.task,
                    queue=job.queue,
                    attempts=job.attempts,
                    max_attempts=job.max_attempts,
                    key=job.key,
                    error=job.error,
                    worker=job.owner,
                    meta=meta_from(job.meta),
                )
            )
