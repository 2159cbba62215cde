"""`current_job()` for tasks that run for long, without a worker: what it raises, keeps and refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dibs import Cancel, DatabaseUnavailable, Dibs, DibsError, InvalidArgument, LostClaim, Release, running
from dibs.jobs import Claim, Position
from dibs.running import CurrentJob, Progress


class Run:
    """What the worker knows, in a test's hands."""

    def __init__(self) -> None:
        self.cancelling = self.stopping = self.finished = self.heard = self.lost = self.over = False
        self.progress: Progress | None = None


class Job(CurrentJob):
    """A job whose checkpoints are kept here; `answers` is what becomes of each write."""

    __slots__ = ("answers", "kept")

    def __init__(self, run: Run) -> None:
        claim = Claim(**{**dict.fromkeys(Claim.__dataclass_fields__), "id": 7, "position": Position("", 7)})  # type: ignore[arg-type]
        super().__init__(Dibs("sqlite:///never-opened.db"), claim, "w", run)
        self.answers: list[Any] = []
        self.kept: list[str | None] = []

    def _write(self, text: str | None) -> bool:
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        self.kept.append(text)
        return bool(answer)


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def job(run: Run, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(running, "CHECKPOINT_AGAIN", 0.0)
    return Job(run)


def test_check(job: Job, run: Run) -> None:
    """It raises nothing while all is well or the claim only may be lost; else what weighs most."""
    job.check()
    run.lost = True
    job.check()
    run.stopping = True
    with pytest.raises(Release) as released:
        job.check()
    assert released.value.delay == 0
    run.cancelling = True
    with pytest.raises(Cancel):
        job.check()
    run.over = True
    with pytest.raises(LostClaim):
        job.check()


def test_progress(job: Job, run: Run) -> None:
    """Kept as a share of 1, whatever number was given; what is no number is refused."""
    for given, kept in [(0.4, 0.4), (1, 1), (1.0000001, 1.0), (-3, 0.0), (math.inf, 1.0)]:
        job.progress(given, note="n")
        assert run.progress is not None
        assert run.progress[:2] == (kept, "n")
    for wrong in (math.nan, "0.5", None, True):
        with pytest.raises(InvalidArgument, match="done: takes a number from 0 to 1"):
            job.progress(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="note"):
        job.progress(0.5, note=3)  # type: ignore[arg-type]


def test_a_checkpoint_is_read_back(job: Job) -> None:
    """As plain JSON values, by the same attempt as well; None takes it away."""
    assert job.last_checkpoint is None
    job.checkpoint({"page": 3, "pair": (1, 2)})
    assert job.last_checkpoint == {"page": 3, "pair": [1, 2]}
    job.checkpoint(None)
    assert job.last_checkpoint is None
    assert job.kept == ['{"page":3,"pair":[1,2]}', None]


def test_a_checkpoint_waits_for_the_database(job: Job) -> None:
    """While it is away the checkpoint is tried again, until it is stored."""
    job.answers = [DatabaseUnavailable("away")] * 3
    job.checkpoint(1)
    assert job.kept == ["1"]


def test_a_checkpoint_that_is_not_taken(job: Job, run: Run) -> None:
    """A lost claim, also one that is lost while the database is away; data that is no JSON; a job that is settled."""
    job.answers = [False]
    with pytest.raises(LostClaim):
        job.checkpoint(1)
    assert job.last_checkpoint is None
    with pytest.raises(InvalidArgument, match="checkpoint"):
        job.checkpoint(object())
    run.over = True
    with pytest.raises(LostClaim):
        job.checkpoint(1)
    run.finished = True
    with pytest.raises(DibsError, match="finish"):
        job.checkpoint(1)
