"""`why` on states of a queue that are made at random: all reasons that hold are named, in their order, and no other."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import pytest

from conformance.hands import FUTURE, PAST, Queue
from conformance.test_why import Q, T, clear, execute, held, near_by, register
from dibs import Why, elsewhere

#: What a job is like: status, task, run_at, attempts, lease_until, started_at.
KINDS: dict[str, tuple[str, str, str, int, str | None, str | None]] = {
    "due": ("ready", T, PAST, 0, None, None),
    "strange": ("ready", "x", PAST, 0, None, None),
    "later": ("ready", T, FUTURE, 0, None, None),
    "again": ("ready", "x", FUTURE, 2, None, None),
    "runs": ("running", T, PAST, 1, FUTURE, PAST),
    "began": ("running", T, PAST, 1, FUTURE, FUTURE),
    "past": ("running", T, PAST, 1, PAST, PAST),
    "bad": ("failed", T, PAST, 3, None, PAST),
    "good": ("done", T, PAST, 1, None, PAST),
}
WORKERS: list[tuple[list[str] | None, list[str]]] = [
    ([Q], [T]),
    ([Q, "e"], [T, "x"]),
    (None, [T]),
    (["e"], [T, "x"]),
]


def write(queue: Queue, jobs: list[tuple[str, str, int]]) -> None:
    """Write jobs `(queue, kind, priority)` in one statement."""
    rows: list[str] = []
    values: dict[str, Any] = {}
    for number, (of, kind, priority) in enumerate(jobs):
        status, task, run_at, attempts, until, started = KINDS[kind]
        owner = "somebody" if until else None
        ended = PAST if status in ("done", "failed") else None
        columns = (of, task, priority, status, run_at, attempts, until, owner, started, ended, ended and FUTURE)
        names = [f"v{number}_{place}" for place in range(len(columns))]
        values |= dict(zip(names, columns, strict=True))
        rows.append(f"('{{}}', '{PAST}', {', '.join(':' + name for name in names)})")
    execute(
        queue,
        "INSERT INTO dibs_jobs (payload, created_at, queue, task, priority, status, run_at, attempts, lease_until, lease_owner, "
        f"started_at, finished_at, expires_at) VALUES {', '.join(rows)}",
        **values,
    )


#: What there is of the queue near by: tasks that a worker there knows (None: there is no worker), and whether a job is due.
THERE: list[tuple[list[str] | None, bool]] = [([T], False), (["other"], False), (None, True), ([T], True)]


def is_elsewhere(kinds: list[str], serving: list[list[str]], tasks: list[str] | None, job: bool) -> bool:
    """Is the other half of this queue there? All jobs are equally old: a place with any of the queue has its own producer."""
    due = [task for task, kind in ((T, "due"), ("x", "strange")) if kind in kinds]
    if due:
        return not serving and not job and tasks is not None and bool({*due} & {*tasks})
    if kinds:
        return False
    if serving:
        return job and tasks is None and any(T in known for known in serving)
    return job or tasks is not None


def expected(
    kinds: list[str],
    locked: int,
    workers: list[tuple[list[str] | None, list[str]]],
    paused: bool,
    there: tuple[list[str] | None, bool],
) -> list[str]:
    """Return all reasons that hold for a queue, by the words and the order of docs/why.md."""
    has = {kind: kinds.count(kind) for kind in KINDS}
    serving = [tasks for queues, tasks in workers if queues is None or Q in queues]
    due = has["due"] + has["strange"]
    waits = due + has["later"] + has["again"]
    runs = has["runs"] + has["began"]
    strange = [task for task, kind in ((T, "due"), ("x", "strange")) if has[kind] and serving]
    reasons = ["misdirected"] * is_elsewhere(kinds, serving, *there)
    if paused:
        reasons.append("paused")
    if has["began"]:
        reasons.append("working")
    if not serving:
        reasons.append("unserved")
    if any(all(task not in known for known in serving) for task in strange):
        reasons.append("unknown_task")
    if locked:
        reasons.append("locked")
    if has["past"]:
        reasons.append("expired")
    if runs:
        reasons.append("leased")
    if due > locked and not reasons:
        reasons.append("working")  # about to be
    if has["again"]:
        reasons.append("retrying")
    if has["later"]:
        reasons.append("scheduled")
    if not waits and not runs and not has["past"]:
        reasons += ["failed"] * (has["bad"] > 0 and not has["good"]) + ["empty"]
    return reasons


def test_no_wrong_reason_in_random_states(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty states on each database: rows of all kinds in this queue and in another one, some held by somebody, workers that
    serve it, or know the tasks, or do not; jobs and workers of a queue of that name near by."""
    monkeypatch.setattr(elsewhere, "MOST_DATABASES", 1)  # others' are in no state of interest, and there may be many
    monkeypatch.setattr(elsewhere, "MOST_PLACES", 2)
    with near_by(queue) as other:
        for seed in range(50):
            a_random_state(queue, other, random.Random(f"{queue.db.name} {seed}"))


def a_random_state(queue: Queue, other: Queue, dice: random.Random) -> None:
    queue.db.empty()
    kinds = [kind for kind in KINDS if dice.random() < 0.2 for _ in range(dice.randint(1, 2))]
    others = [kind for kind in KINDS if dice.random() < 0.3]
    workers = dice.sample(WORKERS, dice.randint(0, 2))
    paused, holds = dice.random() < 0.15, dice.random() < 0.5
    there = dice.choice(THERE) if dice.random() < 0.6 else (None, False)
    jobs = [(Q, kind, dice.randint(0, 1)) for kind in kinds] + [("e", kind, 0) for kind in others]
    if jobs:
        write(queue, jobs)
    for number, (queues, tasks) in enumerate(workers):
        register(queue, f"worker {number}", queues=queues, tasks=tasks)
    if paused:
        queue.app.pause(Q)
    if there[0] is not None:
        register(other, tasks=there[0])
    if there[1]:
        write(other, [(Q, "due", 0)])
    find = "SELECT id FROM dibs_jobs WHERE queue = :queue AND status = 'ready' AND run_at < '2002-01-01'"
    due = [row[0] for row in queue.fetch(find, queue=Q)]
    mine = dice.sample(due, dice.randint(1, len(due))) if holds and due and queue.db.locks_rows else []
    with ExitStack() as stack:
        if mine:
            stack.enter_context(held(queue, *mine))
        why: Why = queue.app.why(Q)
    wanted = expected(kinds, len(mine), workers, paused, there)
    assert [why.reason, *why.also] == wanted, (kinds, workers, there, mine, why)
    if there != (None, False):
        clear(other)
