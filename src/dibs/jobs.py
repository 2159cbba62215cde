"""A job in its several shapes: as it is enqueued, as it is claimed, as it is settled, and as a row to look at.

Plain data; nothing here decides or does anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from dibs.ops import Value
from dibs.states import State


class Lane(NamedTuple):
    """One queue at one priority: a range of the ready index."""

    queue: str
    priority: int


class Position(NamedTuple):
    """A place in a lane. `run_at` is as the database gave it, so that it goes back unchanged."""

    run_at: Any
    id: int


class Wanted(NamedTuple):
    """What a claim is to take: up to `limit` due jobs of a lane, from `since` on (None: from its beginning), in order.

    The first `start` are marked started, the others held; a job whose lease once ran out is only started, never held.
    `tasks` is a value that the dialect's `names` made; `lease` is seconds.
    """

    lane: Lane
    since: Position | None
    tasks: Value
    worker: str
    lease: float
    start: int
    limit: int


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be written. Its fields are those of the row; times are left to the database's clock.

    `run_at` and `delay` (seconds) exclude each other; without either it is due now.
    """

    queue: str
    task: str
    payload: msgspec.Raw
    priority: int = 0
    max_attempts: int = 12
    task_key: str | None = None
    key_until: str | None = None
    run_at: datetime | None = None
    delay: float | None = None
    retention: float | None = None
    meta: msgspec.Raw | None = None


class Enqueued(NamedTuple):
    """What became of a new job: its id, and whether it is new or a duplicate of the job with that id.

    `differs` says that a duplicate came with other arguments than the first (False where that can't be told).
    """

    id: int
    created: bool
    differs: bool = False


@dataclass(slots=True)
class Claim:
    """A job that this worker holds. `started` is whether the database counts this run as begun."""

    id: int
    queue: str
    task: str
    payload: str = field(repr=False)  # arguments are never logged
    priority: int
    attempts: int
    max_attempts: int
    crashes: int
    releases: int
    claims: int
    position: Position
    task_key: str | None
    key_until: str | None
    retention: float | None
    errors: str | None
    meta: str | None
    checkpoint: str | None
    created_at: datetime
    claimed_at: datetime
    started: bool


class Waiting(NamedTuple):
    """A job that has not ended, with what its task will be called with. `payload` is as it is stored, secrets and all."""

    id: int
    task: str
    payload: str
    meta: str | None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about an outcome, for the claim `(id, claims)`. Settling carries it out.

    `delay`, `ran` and `keep` are seconds: until it is due again, that it ran (None: it never started),
    that the finished row is kept (0: it is deleted at once).
    """

    id: int
    claims: int
    status: State
    attempts: int
    releases: int = 0
    delay: float = 0.0
    ran: float | None = None
    keep: float = 0.0
    result: msgspec.Raw | None = None
    error: str | None = None
    errors: msgspec.Raw | None = None

    @property
    def plain(self) -> bool:
        """Does it only say that the job is done, and is its row kept?"""
        return self.status is State.DONE and self.keep > 0 and self.error is None and self.errors is None


class Settled(StrEnum):
    """What became of a verdict."""

    NOW = "now"  # this call carried it out
    ALREADY = "already"  # this very claim had been settled before: an answer had got lost
    LOCKED = "locked"  # somebody's transaction holds the row: try again
    LOST = "lost"  # the claim is no longer ours


class Renewal(NamedTuple):
    """What a renewal found: the claims it renewed (the others are locked for the moment, or lost), those that are
    lost, and the jobs that a person wants cancelled."""

    renewed: set[int]
    lost: set[int]
    cancelling: set[int]


class Owner(NamedTuple):
    """What a job is, and the worker that has it or was the last to have it; None where a lease ran out since."""

    status: State
    worker: str | None


class Cancelled(NamedTuple):
    """A job that a person's wish to cancel has met. `waited`: it was ready, and has ended; else it runs and is asked
    to end."""

    id: int
    waited: bool
    task: str
    queue: str
    attempts: int
    max_attempts: int
    key: str | None
    meta: str | None


class Past(NamedTuple):
    """A claim whose lease ran out, and whose row nobody holds."""

    id: int
    claims: int
    lease: float
    queue: str


class Expired(NamedTuple):
    """A claim that upkeep took back, and what the job is now."""

    id: int
    task: str
    queue: str
    owner: str | None
    status: State
    attempts: int = 0
    max_attempts: int = 0
    key: str | None = None
    error: str | None = None
    meta: str | None = None


#: The columns of a job as a person sees it, in the order of `JobRecord`'s fields. JSON is read as text, also over a
#: connection whose driver would turn it into objects.
RECORD_COLUMNS = (
    "id, queue, task, payload{as_text}, task_key, priority, status, run_at, attempts, max_attempts, crashes, releases, claims, "
    "lease_owner, lease_until, lease, created_at, started_at, finished_at, expires_at, retention, key_until, "
    "result{as_text}, error, errors{as_text}, meta{as_text}, cancel_requested_at, cancel_requested_by, cancel_reason, "
    "progress{as_text}, checkpoint{as_text}"
)


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its row said when it was looked up. Times are aware UTC, durations seconds.

    `payload`, `result`, `errors`, `meta`, `progress` and `checkpoint` are plain JSON values. `duplicates` counts
    the enqueues with the same key that were refused for the sake of this job. Secret arguments are masked, here and
    wherever else on the row their values stand, and so is a secret result: nothing that is made of a record can show
    them; who needs them asks the table.
    """

    id: int
    queue: str
    task: str
    payload: Any
    task_key: str | None
    priority: int
    status: State
    run_at: datetime
    attempts: int
    max_attempts: int
    crashes: int
    releases: int
    claims: int
    lease_owner: str | None
    lease_until: datetime | None
    lease: float | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    retention: float | None
    key_until: str | None
    result: Any
    error: str | None
    errors: list[Any]
    meta: Any
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    cancel_reason: str | None
    progress: Any
    checkpoint: Any
    duplicates: int = 0
