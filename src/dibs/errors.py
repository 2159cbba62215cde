"""Every error dibs raises, and every signal a task raises to steer its job.

An error carries its facts as attributes and says in its text what to do next, where that is known. Errors of
a driver on a connection that the user brought are not wrapped: they are the user's to handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta


class DibsError(Exception):
    """The base of every error that dibs raises."""


# -- what was asked cannot be done as it was asked ------------------------------------------------


class ConfigurationError(DibsError):
    """dibs was set up in a way that cannot work: a URL, a missing driver, a module that does not import."""


class InvalidArgument(DibsError, ValueError):
    """A value was refused at the call, before anything was sent to a database.

    `path` says which one, such as `order_id` or `lines[3].price`.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}" if path else problem)


class UnsupportedConnection(DibsError, TypeError):
    """The object given as `connection=` is not one that a job can be enqueued on."""


def lacks_character(character_set: str, character: str, advice: str) -> UnsupportedConnection:
    """Return the error for a text that a connection's character set can't hold."""
    return UnsupportedConnection(
        f"this connection's character set is {character_set}, which has no {character!r} (U+{ord(character):04X}): {advice}"
    )


class AutocommitConnection(DibsError):
    """What was asked takes more than one statement, and this connection commits each of them alone."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what} takes a transaction, and this connection is in autocommit mode: "
            "open a transaction on it first, or leave out connection= to let dibs use its own"
        )


class JobNotFound(DibsError, LookupError):
    """There is no such job: never was, or its retention is over and it was pruned."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"no job {job_id}: it was never enqueued here, or it was pruned when its retention was over")


# -- the database --------------------------------------------------------------------------------


class DatabaseError(DibsError):
    """The database could not do what dibs asked on a connection of its own."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached."""


class DatabaseFull(DatabaseUnavailable):
    """The database answers and has no room for what is to be written, or its disk fails."""


class ReadOnlyDatabase(DatabaseError):
    """The server takes no writes: a replica, or a primary that was set read-only."""


class UnsuitableDatabase(DatabaseError):
    """The server is set in a way on which a queue cannot be run."""


class MissingPrivilege(DatabaseError):
    """The account that dibs connects with lacks privileges.

    `grants` are the statements that give them to `account`; where it could not be found out which these are, there are
    none, and the text has what the database said.
    """

    def __init__(self, account: str, grants: Sequence[str], said: str = "") -> None:
        self.account = account
        self.grants = list(grants)
        text = f"a privilege is missing: {said}"
        if grants:
            text = f"the account {account} lacks privileges, have them granted: {'; '.join(grants)}"
            text += f" (the database said: {said})" if said else ""
        super().__init__(text)


class OutcomeUnknown(DatabaseError):
    """The connection was lost while a commit was under way: it may have happened or not.

    Only an enqueue without a key raises this. With a key it is simply asked again.
    """


class SchemaError(DatabaseError):
    """The tables of dibs are missing, or do not fit this version of the code."""


class CodeTooOld(SchemaError):
    """The tables of dibs were migrated to what this version of the code can't work on any more, and say so."""


# -- claims --------------------------------------------------------------------------------------


class LostClaim(DibsError):
    """The job is no longer ours: its lease ran out and it was taken back or claimed again."""

    def __init__(self, job_id: int, worker: str) -> None:
        self.job_id = job_id
        self.worker = worker
        super().__init__(f"job {job_id} is no longer claimed by {worker}")


class TaskError(DibsError):
    """Stands for an exception that a task raised in a process of its own, of which only the text comes here.

    `kind` is the name of its class, `text` its traceback.
    """

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text
        super().__init__(text.strip().splitlines()[-1] if text.strip() else kind)


# -- waiting for a result ------------------------------------------------------------------------


class JobFailed(DibsError):
    """The job has failed for good; `error` is its last traceback."""

    def __init__(self, job_id: int, error: str | None) -> None:
        self.job_id = job_id
        self.error = error
        last_line = error.strip().splitlines()[-1] if error and error.strip() else "no reason was kept"
        super().__init__(f"job {job_id} failed: {last_line}")


class JobCancelled(DibsError):
    """The job was cancelled; `reason` says why, where a reason was given."""

    def __init__(self, job_id: int, reason: str | None) -> None:
        self.job_id = job_id
        self.reason = reason
        super().__init__(f"job {job_id} was cancelled" + (f": {reason}" if reason else ""))


class StillRunning(DibsError, TimeoutError):
    """The job had not ended when the time to wait was over; `status` is what it was then."""

    def __init__(self, job_id: int, status: str) -> None:
        self.job_id = job_id
        self.status = status
        super().__init__(f"job {job_id} has not ended yet: it is {status}")


class KeyTaken(DibsError):
    """Some jobs could not be requeued, because another job holds their key now.

    `holders` maps each refused id to the job that holds its key; `moved` are the ids that were requeued.
    """

    def __init__(self, holders: dict[int, int], moved: Sequence[int]) -> None:
        self.holders = holders
        self.moved = list(moved)
        named = ", ".join(f"job {job} (held by job {holder})" for job, holder in sorted(holders.items()))
        super().__init__(f"the key is taken: {named}; cancel the holder first, or leave it to do the work")


# -- signals -------------------------------------------------------------------------------------


class Signal(Exception):
    """The base of what a task raises to steer its job. Not an error."""


class Retry(Signal):
    """Run this job again: after `delay`, or after the usual backoff. The attempt counts."""

    def __init__(self, reason: str = "", *, delay: timedelta | float | None = None) -> None:
        self.reason = reason
        self.delay = delay
        super().__init__(reason)


class Release(Signal):
    """Hand this job back unharmed, to be run after `delay` (5 s unless said). No attempt is counted.

    It is bounded: a job that was released `Dibs(max_releases=…)` times fails, so that nothing circles for ever.
    """

    def __init__(self, reason: str = "", *, delay: timedelta | float = 5.0) -> None:
        self.reason = reason
        self.delay = delay
        super().__init__(reason)


class Cancel(Signal):
    """End this job as cancelled: there is nothing left to do."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Fail(Signal):
    """Fail this job at once: trying again would not help."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)
