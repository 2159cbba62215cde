"""Random sequences of what happens to a queue, against a small model of it in Python.

After each step the database says what the model says: of every job its status and counters, of every key its holder,
of every duplicate its count. Claims stay in hand after they were lost, so that late writes are tried all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from conformance.hands import PAST, Queue, new_job, verdict
from databases import NAMES
from dibs.errors import KeyTaken
from dibs.jobs import Claim, Settled
from dibs.retries import MAX_CRASHES
from dibs.states import FINAL, State

WORKERS = ["one", "two"]
KEYS = [None, "a", "b", "c"]

pick = st.randoms(use_true_random=False)


@dataclass
class Modelled:
    """What a job's row should say."""

    key: str | None = None
    key_until: str | None = None
    max_attempts: int = 2
    status: State = State.READY
    attempts: int = 0
    crashes: int = 0
    claims: int = 0
    owner: str | None = None
    started: bool = False
    lapsed: bool = False
    cancelling: bool = False
    duplicates: int = 0
    order: int = 0  # of the moment from which it is due


@dataclass
class Held:
    """A claim as a worker has it, good or not."""

    claim: Claim
    worker: str


@dataclass
class Model:
    jobs: dict[int, Modelled] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    paused: bool = False
    moments: int = 0

    def of(self, *statuses: State) -> list[int]:
        return [job_id for job_id, job in self.jobs.items() if job.status in statuses]

    def free(self, job_id: int) -> None:
        key = self.jobs[job_id].key
        if key is not None and self.keys.get(key) == job_id:
            del self.keys[key]

    def judge(self, held: Held) -> Settled:
        """Say what becomes of a write about this claim."""
        job = self.jobs.get(held.claim.id)
        if job is None:
            return Settled.ALREADY
        if (job.claims, job.owner) != (held.claim.claims, held.worker):
            return Settled.LOST
        return Settled.NOW if job.status is State.RUNNING else Settled.ALREADY


class Machine(RuleBasedStateMachine):
    queue: Queue

    @initialize()
    def start(self) -> None:
        self.queue.db.empty()
        self.model = Model()

    # -- enqueue -----------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.of(State.READY, State.RUNNING)) < 6)
    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        max_attempts=st.integers(1, 3),
        key_until=st.sampled_from([None, "finished"]),
    )
    def enqueue(self, keys: list[str | None], max_attempts: int, key_until: str | None) -> None:
        jobs = [new_job(key=key, key_until=key_until, max_attempts=max_attempts) for key in keys]
        for key, answer in zip(keys, self.queue.enqueue(*jobs), strict=True):
            holder = self.model.keys.get(key) if key is not None else None
            assert answer.created is (holder is None)
            if holder is not None:
                assert answer.id == holder
                self.model.jobs[holder].duplicates += 1
                continue
            assert answer.id not in self.model.jobs, "a new id"
            self.model.jobs[answer.id] = Modelled(key, key_until, max_attempts)
            self._ready(answer.id)
            if key is not None:
                self.model.keys[key] = answer.id

    def _ready(self, job_id: int) -> None:
        """Put it behind all that are ready: by the clock two may become so in the same moment, and a run of these
        steps must be the same each time."""
        self.model.moments += 1
        self.model.jobs[job_id].order = self.model.moments
        minutes, seconds = divmod(self.model.moments, 60)
        self.queue.write(job_id, run_at=f"2001-01-01 00:{minutes:02}:{seconds:02}.000")

    # -- a worker ----------------------------------------------------------------------------------

    @precondition(lambda self: self.model.of(State.READY))
    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 4), start=st.integers(0, 4))
    def claim(self, worker: str, limit: int, start: int) -> None:
        ready = sorted(self.model.of(State.READY), key=lambda job_id: self.model.jobs[job_id].order)
        expected = []
        for place, job_id in enumerate([] if self.model.paused else ready[:limit]):
            if place < start or self.model.jobs[job_id].crashes == 0:
                expected.append((job_id, place < start))
        claims = self.queue.claim(worker=worker, limit=limit, start=start)
        assert [(claim.id, claim.started) for claim in claims] == expected
        for claim in claims:
            job = self.model.jobs[claim.id]
            job.status, job.owner, job.started, job.lapsed = State.RUNNING, worker, claim.started, False
            job.claims += 1
            job.attempts += claim.started
            assert (claim.claims, claim.attempts, claim.crashes) == (job.claims, job.attempts, job.crashes)
            self.model.held.append(Held(replace(claim), worker))

    @precondition(lambda self: self.model.held)
    @rule(
        dice=pick, number=st.integers(1, 4), status=st.sampled_from([State.READY, *sorted(FINAL)]), keep=st.booleans()
    )
    def settle(self, dice: Any, number: int, status: State, keep: bool) -> None:
        """Of one worker, some claims of different jobs, good ones and stale ones."""
        first = dice.choice(self.model.held)
        batch = {first.claim.id: first}
        for held in dice.sample(self.model.held, min(number, len(self.model.held))):
            if held.worker == first.worker:
                batch.setdefault(held.claim.id, held)
        expected = [self.model.judge(held) for held in batch.values()]
        verdicts = [verdict(held.claim, status, keep=60.0 * keep) for held in batch.values()]
        assert self.queue.settle(*verdicts, worker=first.worker) == expected
        for held, judged in zip(batch.values(), expected, strict=True):
            if judged is Settled.NOW:
                self._ended(held, status, keep)

    def _ended(self, held: Held, status: State, keep: bool) -> None:
        job_id = held.claim.id
        job = self.model.jobs[job_id]
        job.attempts, job.lapsed = held.claim.attempts, False
        if status is not State.READY and not keep:
            self.model.free(job_id)
            del self.model.jobs[job_id]
            return
        job.status = State.CANCELLED if job.cancelling else status
        if job.status is State.READY:
            self._ready(job_id)
        if job.status in (State.FAILED, State.CANCELLED) or (job.status is State.DONE and job.key_until == "finished"):
            self.model.free(job_id)

    @precondition(lambda self: self.model.held)
    @rule(dice=pick)
    def renew(self, dice: Any) -> None:
        held = dice.choice(self.model.held)
        renewal = self.queue.renew(held.claim, worker=held.worker)
        judged = self.model.judge(held)
        job = self.model.jobs.get(held.claim.id)
        assert renewal.renewed == ({held.claim.id} if judged is Settled.NOW else set())
        assert renewal.lost == ({held.claim.id} if judged is Settled.LOST or job is None else set())
        if judged is Settled.NOW:
            assert job is not None
            job.lapsed = False
            assert renewal.cancelling == ({held.claim.id} if job.cancelling else set())

    @precondition(lambda self: self.model.held)
    @rule(dice=pick)
    def mark_started(self, dice: Any) -> None:
        held = dice.choice(self.model.held)
        if self.model.judge(held) is Settled.NOW and not self.model.jobs[held.claim.id].started:
            self.model.jobs[held.claim.id].attempts += 1
            self.model.jobs[held.claim.id].started = True
            held.claim.attempts += 1
        claims = {held.claim.id: held.claim.claims}
        self.queue.do(lambda: self.queue.dialect.mark_started(claims, worker=held.worker))

    # -- upkeep ------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.of(State.RUNNING))
    @rule(dice=pick, number=st.integers(0, 2))
    def expire(self, dice: Any, number: int) -> None:
        running = self.model.of(State.RUNNING)
        for job_id in dice.sample(running, min(number, len(running))):
            self.queue.lapse(job_id)
            self.model.jobs[job_id].lapsed = True
        expected = {}
        for job_id in self.model.of(State.RUNNING):
            job = self.model.jobs[job_id]
            if not job.lapsed:
                continue
            job.crashes += 1
            job.owner, job.lapsed = None, False
            used_up = job.crashes >= MAX_CRASHES or job.attempts >= job.max_attempts
            job.status = State.CANCELLED if job.cancelling else State.FAILED if used_up else State.READY
            if job.status is not State.READY:
                self.model.free(job_id)
            expected[job_id] = job.status
        assert self.queue.expire() == expected
        for job_id in [job_id for job_id, status in expected.items() if status is State.READY]:
            self._ready(job_id)

    @precondition(lambda self: any(job.duplicates > 1 for job in self.model.jobs.values()))
    @rule()
    def fold(self) -> None:
        self.queue.do(lambda: self.queue.dialect.fold(limit=100))

    @precondition(lambda self: self.model.of(*FINAL))
    @rule(dice=pick)
    def prune(self, dice: Any) -> None:
        job_id = dice.choice(self.model.of(*FINAL))
        self.queue.write(job_id, expires_at=PAST)
        assert self.queue.app.prune() == 1
        self.model.free(job_id)
        del self.model.jobs[job_id]

    # -- people ------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.of(State.READY, State.RUNNING))
    @rule(dice=pick)
    def cancel(self, dice: Any) -> None:
        ids = dice.sample(sorted(self.model.jobs), min(2, len(self.model.jobs)))
        expected = sorted(set(ids) & set(self.model.of(State.READY, State.RUNNING)))
        assert self.queue.cancel(*ids) == expected
        for job_id in expected:
            job = self.model.jobs[job_id]
            if job.status is State.READY:
                job.status = State.CANCELLED
                self.model.free(job_id)
            else:
                job.cancelling = True

    @precondition(lambda self: self.model.of(*FINAL))
    @rule(dice=pick, force=st.booleans())
    def requeue(self, dice: Any, force: bool) -> None:
        ids = dice.sample(sorted(self.model.jobs), min(3, len(self.model.jobs)))
        fit = set(ids) & set(self.model.of(State.FAILED, State.CANCELLED, *([State.DONE] if force else [])))
        moved, refused = [], {}
        for job_id in sorted(fit):
            job = self.model.jobs[job_id]
            if job.key is not None and self.model.keys.setdefault(job.key, job_id) != job_id:
                refused[job_id] = self.model.keys[job.key]
                continue
            moved.append(job_id)
            job.status, job.attempts, job.crashes, job.cancelling = State.READY, 0, 0, False
        try:
            assert self.queue.requeue(*ids, force=force) == moved
            assert not refused
        except KeyTaken as taken:
            assert (taken.holders, taken.moved) == (refused, moved)
        for job_id in moved:
            self._ready(job_id)

    @precondition(lambda self: self.model.paused or len(self.model.jobs) > 3)
    @rule()
    def pause_or_resume(self) -> None:
        assert self.queue.app.resume("q") if self.model.paused else self.queue.app.pause("q")
        self.model.paused = not self.model.paused

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def the_database_says_what_the_model_says(self) -> None:
        rows = self.queue.fetch("SELECT id, status, attempts, crashes, claims FROM dibs_jobs")
        assert {row[0]: row[1:] for row in rows} == {
            job_id: (job.status, job.attempts, job.crashes, job.claims) for job_id, job in self.model.jobs.items()
        }
        assert self.queue.keys() == self.model.keys
        counted = self.queue.fetch("SELECT job_id, sum(times) FROM dibs_duplicates GROUP BY job_id")
        duplicates = {job_id: int(times) for job_id, times in counted}
        expected = {job_id: job.duplicates for job_id, job in self.model.jobs.items() if job.duplicates}
        assert {job_id: times for job_id, times in duplicates.items() if job_id in self.model.jobs} == expected

    @invariant()
    def the_row_is_whole(self) -> None:
        """Columns that go together do."""
        odd = self.queue.fetch("""
            SELECT id FROM dibs_jobs
            WHERE (status = 'running') <> (lease_until IS NOT NULL)
               OR (status IN ('done', 'failed', 'cancelled')) <> (finished_at IS NOT NULL)
               OR (status IN ('done', 'failed', 'cancelled')) <> (expires_at IS NOT NULL)
               OR (status = 'running' AND (lease_owner IS NULL OR lease IS NULL))
        """)
        assert odd == []


@pytest.mark.parametrize("db", [name for name in NAMES if name in ("sqlite", "postgres")], indirect=True)
def test_the_queue_is_what_the_model_is(queue: Queue) -> None:
    """Whatever happens, in whichever order."""
    machine = type("MachineHere", (Machine,), {"queue": queue})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
