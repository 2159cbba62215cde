"""Enqueue with idempotency keys: the same steps on every database, each with its own statements.

Holders are read first, without locking: the usual duplicate costs one read and touches nobody's row. Only keys
that seem free are inserted, waiting at most for another transaction that is taking the same key.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from dibs.dialects.spelling import Spelling
from dibs.errors import UnsuitableDatabase
from dibs.jobs import Enqueued, NewJob
from dibs.ops import Op, execute, fetch

Key = tuple[str, str]

#: How often a key is looked for that is taken when we insert and free when we look. Somebody lets go of it in between
#: once or twice; for ever means that the database takes two keys for one.
MOST_ROUNDS = 100


class KeyedEnqueue(Spelling):
    """The enqueue op, for dialects that say how jobs, keys and duplicates are written."""

    #: Rows of task, task_key, job_id, payload for the keys in the JSON list `:keys` that are held.
    FIND_HOLDERS: ClassVar[str]
    #: Appends the duplicates in the JSON object `:duplicates`, `{job id: times}`.
    RECORD_DUPLICATES: ClassVar[str]

    @abstractmethod
    def insert_jobs(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[list[int]]:
        """Write jobs without keys; return their ids in order. Ids rise in the order of the jobs."""

    @abstractmethod
    def insert_keyed(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[dict[Key, int]]:
        """Write jobs whose keys are free, each key once; return the ids of those that got theirs."""

    def find_holders(self, keys: Sequence[Key]) -> Op[dict[Key, tuple[int, str | None]]]:
        """Return the holder's id and payload for each key that is held, as far as this transaction can see.

        Where a read would lock, or count as one that others depend on, there may be more.
        """
        return (yield from self.holders_by(self.FIND_HOLDERS, keys))

    def holders_by(self, statement: str, keys: Sequence[Key]) -> Op[dict[Key, tuple[int, str | None]]]:
        """Return what this statement says of the holders of these keys."""
        asked = msgspec.json.encode([{"task": task, "task_key": key} for task, key in keys]).decode()
        rows = yield from fetch(statement, keys=asked)
        return {(task, key): (job_id, payload) for task, key, job_id, payload in rows}

    def find_new_holders(self, keys: Sequence[Key]) -> Op[dict[Key, tuple[int, str | None]]]:
        """The same for keys that somebody took since the first look, also in a transaction with an old snapshot."""
        return (yield from self.find_holders(keys))

    def enqueue(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[list[Enqueued]]:
        if not any(job.task_key is not None for job in jobs):
            ids = yield from self.insert_jobs(jobs, tell=tell)
            return [Enqueued(job_id, True) for job_id in ids]

        firsts: dict[Key, NewJob] = {}  # of two equal keys in one call the first one counts
        for job in jobs:
            if job.task_key is not None:
                firsts.setdefault((job.task, job.task_key), job)
        holders = yield from self.find_holders(list(firsts))
        taken: dict[Key, int] = {}
        rounds = 0
        while missing := [key for key in firsts if key not in holders and key not in taken]:
            if (rounds := rounds + 1) > MOST_ROUNDS:
                raise UnsuitableDatabase(
                    f"key {missing[0][1]!r} is taken, and by nobody: dibs_keys must compare its texts byte by byte. "
                    "Was its collation changed?"
                )
            taken |= yield from self.insert_keyed([firsts[key] for key in missing], tell=tell)
            if late := [key for key in missing if key not in taken]:
                # Somebody else took it between our look and our insert. If they let go of it meanwhile: again.
                holders |= yield from self.find_new_holders(late)

        plain = [job for job in jobs if job.task_key is None]
        plain_ids = iter((yield from self.insert_jobs(plain, tell=tell)) if plain else [])
        answers: list[Enqueued] = []
        duplicates: Counter[int] = Counter()
        for job in jobs:
            if job.task_key is None:
                answers.append(Enqueued(next(plain_ids), True))
                continue
            key = (job.task, job.task_key)
            if key in taken and firsts[key] is job:
                answers.append(Enqueued(taken[key], True))
                continue
            holder, payload = (taken[key], bytes(firsts[key].payload).decode()) if key in taken else holders[key]
            duplicates[holder] += 1
            differs = payload is not None and payload != bytes(job.payload).decode()
            answers.append(Enqueued(holder, False, differs))
        if duplicates:
            yield from execute(
                self.RECORD_DUPLICATES,
                duplicates=msgspec.json.encode({str(job_id): times for job_id, times in duplicates.items()}).decode(),
            )
        return answers


def jobs_json(jobs: Sequence[NewJob]) -> str:
    """Return jobs as the one JSON list that a bulk insert takes."""
    return msgspec.json.encode(jobs).decode()


def alike(jobs: Sequence[NewJob]) -> bool:
    """Do these jobs differ in nothing but their payloads, are they due now, and without keys?

    Most bulks are like that, and a statement that names the rest once takes a third of the time.
    """
    first = jobs[0]
    return first.meta is None and all(
        job.task == first.task
        and job.queue == first.queue
        and job.priority == first.priority
        and job.max_attempts == first.max_attempts
        and job.retention == first.retention
        and job.delay is None
        and job.run_at is None
        and job.meta is None
        and job.task_key is None
        for job in jobs
    )


def payloads_json(jobs: Sequence[NewJob]) -> str:
    """Return the payloads of jobs as one JSON list."""
    return (b"[" + b",".join([bytes(job.payload) for job in jobs]) + b"]").decode()
