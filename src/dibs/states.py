"""The life of a job, as one table. The docs draw it, the dialects make these moves and no others.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The five statuses of a job. "Scheduled" is ready with a later `run_at`; "retrying" is ready with
    `attempts > 0`; "held" is running with no `started_at`."""

    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(StrEnum):
    """What can happen to a job."""

    CLAIM = "claim"
    FINISH = "finish"
    RETRY = "retry"
    FAIL = "fail"
    CANCEL = "cancel"
    RELEASE = "release"
    EXPIRE = "expire"
    REQUEUE = "requeue"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.READY, Event.CLAIM): State.RUNNING,
    (State.READY, Event.CANCEL): State.CANCELLED,
    (State.RUNNING, Event.FINISH): State.DONE,
    (State.RUNNING, Event.RETRY): State.READY,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.CANCEL): State.CANCELLED,  # asked for by a person, carried out when it is settled
    (State.RUNNING, Event.RELEASE): State.READY,
    (State.RUNNING, Event.EXPIRE): State.READY,  # the worker went quiet
    (State.FAILED, Event.REQUEUE): State.READY,  # a person wants it run again
    (State.CANCELLED, Event.REQUEUE): State.READY,
}

#: Statuses that a job does not leave by itself.
FINAL = frozenset({State.DONE, State.FAILED, State.CANCELLED})


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for the README."""
    lines = ["stateDiagram-v2", "    [*] --> ready: enqueue"]
    lines += [f"    {state} --> {target}: {event}" for (state, event), target in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]: prune" for state in State if state in FINAL]
    return "\n".join(lines)
