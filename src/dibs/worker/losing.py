"""Who has a job whose claim was lost: asked once after the database refused something, for the log and for events.

Never before a write: that a claim is good says the write itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from dibs.errors import DatabaseError
from dibs.jobs import Owner, Settled
from dibs.logs import CLAIM
from dibs.states import State
from dibs.store import Store
from dibs.worker.runs import Run
from dibs.worker.telling import tell

logger = logging.getLogger("dibs")

GONE = "it has ended and its row is gone"


def lose(store: Store, runs: Iterable[Run], *, worker: str) -> None:
    """Tell the code of these runs that their claims are lost, and then the log and the handlers of events."""
    told = [run for run in runs if not run.ended and not run.finished and not run.known_lost]
    for run in told:
        run.lose()
    find_owners(store, told, worker=worker)
    for run in told:
        logger.warning(
            "job %d: lost: its lease ran out, and %s; %s is told",
            run.claim.id,
            run.lost_to,
            run.task.name,
            extra={CLAIM: run.claim},
        )
        tell(run.task.app, "lost", run, worker=worker, error=run.lost_to, ran=run.ran())


def find_owners(store: Store, lost: Sequence[Run], *, worker: str) -> None:
    """Take note, in each of these runs of this worker's, of who has its job now (`lost_to`)."""
    if not lost:
        return
    ids = [run.claim.id for run in lost]
    try:
        owners = store.run(lambda: store.dialect.owners(ids))
    except DatabaseError:  # it is for a person to read: nothing depends on it
        return
    for run in lost:
        run.lost_to = describe(owners.get(run.claim.id), worker=worker)


def refuse_gone(store: Store, answers: dict[int, Settled], asked: Sequence[Run], *, worker: str) -> dict[int, Settled]:
    """Return the answers about runs that were settled for the first time, those whose rows are gone being lost.

    Of those it is answered that they are settled already; not by us, if we have never asked before.
    """
    doubtful = [run for run in asked if answers[run.claim.id] is Settled.ALREADY and not run.finished]
    if not doubtful:
        return answers
    find_owners(store, doubtful, worker=worker)
    return answers | {run.claim.id: Settled.LOST for run in doubtful if run.lost_to == GONE}


def describe(owner: Owner | None, *, worker: str) -> str:
    """Say who has a job now that `worker` has lost.

    >>> describe(Owner(State.RUNNING, "web-2:7:b1"), worker="web-1:12:9f")
    'web-2:7:b1 has it now'
    >>> describe(Owner(State.DONE, "web-2:7:b1"), worker="web-1:12:9f")
    'it is done by now, by web-2:7:b1'
    """
    if owner is None:
        return GONE
    by = "this worker in a later claim" if owner.worker == worker else owner.worker
    if owner.status is State.RUNNING:
        return f"{by} has it now"
    if owner.status is State.READY:
        return "it is ready, and nobody has it now"
    return f"it is {owner.status} by now" + (f", by {by}" if by else "")
