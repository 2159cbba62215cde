"""What really happened, decided from what is on the disk and in the database. Pure: no I/O, no clock.

Nothing here asks what the demo believes to have done. The results were unpacked and compared with their sources, the
rows were read from the database, and the tasks' own log says which runs there were.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dibs.demo.files import FileJob
from dibs.demo.kill import Kill
from dibs.demo.looks import Look
from dibs.demo.run_log import Run
from dibs.jobs import JobRecord
from dibs.states import State

#: Examples given of one kind of problem, at most.
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the judgement goes by."""

    jobs: Sequence[FileJob]
    looks: Mapping[str, Look]  # by key
    rows: Sequence[JobRecord]
    runs: Sequence[Run]
    kill: Kill | None
    results: frozenset[str]  # the paths of all results that there are


@dataclass
class Proof:
    """The figures, and what is wrong with them if anything is."""

    files: int
    results: int
    verified: int
    lost: int
    doubled: int
    killed: int
    rerun: int
    duplicates: int
    changed: int  # files left out: their sources are not what they were
    attempts: Counter[int]  # the attempts that the jobs which were run again used → how many jobs
    unrecorded: int  # of those run again: the result was whole, but the worker was killed before it could say so
    begun: int  # jobs that the killed worker held and had begun
    problems: list[str] = field(default_factory=list)


def judge(evidence: Evidence) -> Proof:
    """Decide what was lost and what was doubled."""
    kept = [job for job in evidence.jobs if evidence.looks[job.key] is not Look.CHANGED]
    rows: dict[str, list[JobRecord]] = defaultdict(list)
    for row in evidence.rows:
        rows[row.task_key or ""].append(row)
    runs: dict[int, list[Run]] = defaultdict(list)
    for run in evidence.runs:
        runs[run.job].append(run)

    lost = [job for job in kept if not _is_done(job, evidence.looks, rows)]
    doubled = [job for job in kept if _times_too_often(rows[job.key], runs, evidence.kill)]
    cut, again = _run_again(runs, evidence.kill)
    by_id = {row.id: row for row in evidence.rows}
    proof = Proof(
        files=len(kept),
        results=sum(job.result in evidence.results for job in kept),
        verified=sum(evidence.looks[job.key] is Look.VERIFIED for job in kept),
        lost=len(lost),
        doubled=len(doubled),
        killed=int(evidence.kill is not None),
        rerun=len(again),
        duplicates=sum(row.duplicates for job in kept for row in rows[job.key]),
        changed=len(evidence.jobs) - len(kept),
        attempts=Counter(by_id[run.job].attempts for run in again if run.job in by_id),
        unrecorded=sum(run.ended is not None for run in cut),
        begun=sum(_is_cut(run, evidence.kill) for run in evidence.runs),
    )
    proof.problems += _problems(proof, evidence, lost, doubled, rows)
    return proof


def _is_done(job: FileJob, looks: Mapping[str, Look], rows: Mapping[str, list[JobRecord]]) -> bool:
    return looks[job.key] is Look.VERIFIED and any(row.status is State.DONE for row in rows[job.key])


def _times_too_often(rows: Sequence[JobRecord], runs: Mapping[int, list[Run]], kill: Kill | None) -> int:
    """Return how often the work for one key was done beyond once.

    A second row is once too often, and so is a second run that finished. Except where the first finished in the
    worker that was killed and the database says that it never heard of it: a job can't be more than "at least
    once" there, and its task must bear that.
    """
    finished = [run for row in rows for run in runs.get(row.id, []) if run.ended is not None]
    unheard = sum(_is_cut(run, kill) for run in finished)
    return max(len(rows) - 1, 0) + max(len(finished) - unheard - 1, 0)


def _run_again(runs: Mapping[int, list[Run]], kill: Kill | None) -> tuple[list[Run], list[Run]]:
    """Return the runs that the kill cut off, and the first ones after them of the same jobs."""
    cut, again = [], []
    for of_one_job in runs.values():
        for run, following in pairwise(of_one_job):
            if _is_cut(run, kill):
                cut.append(run)
                again.append(following)
    return cut, again


def _is_cut(run: Run, kill: Kill | None) -> bool:
    """Was this run the killed worker's, and never heard of as ended by the database?"""
    if kill is None or run.worker != kill.worker:
        return False
    return any((job.id, job.claims) == (run.job, run.claims) for job in kill.held)


def _problems(
    proof: Proof,
    evidence: Evidence,
    lost: Sequence[FileJob],
    doubled: Sequence[FileJob],
    rows: Mapping[str, list[JobRecord]],
) -> list[str]:
    problems = []
    if not proof.files:
        problems.append("every file was changed or removed while the demo ran, so there is nothing to prove")
    if lost:
        problems.append(f"lost: {_examples(_why_lost(job, evidence.looks, rows[job.key]) for job in lost)}")
    if doubled:
        problems.append(f"doubled: {_examples(_shown(job.source.path) for job in doubled)}")
    if not proof.killed:
        problems.append("no worker could be killed in the middle of a job: the work was over before")
    elif not proof.rerun:
        problems.append("no job of the killed worker was run again")
    if proof.duplicates != proof.files and proof.files:
        problems.append(
            f"of {proof.files:,} jobs that were enqueued a second time, {proof.duplicates:,} are recorded as duplicates"
        )
    if others := evidence.results - {job.result for job in evidence.jobs}:
        problems.append(f"results that belong to no file: {_examples(map(_shown, sorted(others)))}")
    return problems


def _why_lost(job: FileJob, looks: Mapping[str, Look], rows: Sequence[JobRecord]) -> str:
    reasons = [] if looks[job.key] is Look.VERIFIED else [str(looks[job.key])]
    for row in rows:
        if row.status is not State.DONE:
            last_line = (row.error or "").strip().splitlines()[-1:]
            reasons.append(": ".join([f"job {row.id} is {row.status}", *last_line]))
    if not rows:
        reasons.append("there is no such job in the database")
    return f"{_shown(job.source.path)} ({', '.join(reasons)})"


def _examples(texts: Iterable[str]) -> str:
    shown = list(texts)
    more = f" and {len(shown) - EXAMPLES:,} more" if len(shown) > EXAMPLES else ""
    return "; ".join(shown[:EXAMPLES]) + more


def _shown(path: str) -> str:
    return path if path.isprintable() else ascii(path)
