"""Kills one worker while it holds running jobs, and not a moment before or after."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dibs.app import Dibs
from dibs.demo import run_log
from dibs.demo.folder import Folder
from dibs.demo.processes import Processes, WorkerProcess
from dibs.jobs import JobRecord
from dibs.states import State

#: Running jobs looked at, at most.
LOOK_AT = 10_000


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed, when (seconds of this machine's clock), and the jobs it then held."""

    worker: int
    pid: int
    at: float
    held: list[JobRecord]


def running(app: Dibs, queue: str) -> dict[int, list[JobRecord]]:
    """Return what the database says is running in this queue, by the process id of who holds it."""
    found: dict[int, list[JobRecord]] = {}
    for job in app.jobs(status=State.RUNNING, queue=queue, limit=LOOK_AT):
        found.setdefault(_pid_of(job.lease_owner or ""), []).append(job)
    return found


def try_to_kill(app: Dibs, queue: str, folder: Folder, processes: Processes, *, charged: bool) -> Kill | None:
    """Kill the worker that holds most, if it is certain that it is in the middle of a job.

    It is frozen for the look, since what it held a moment ago it may have finished by now. With `charged` it must be
    a job that the database counts as started, too: it learns of short ones only when they have ended.
    """
    held = running(app, queue)
    for pid in sorted(held, key=lambda pid: -len(held[pid])):
        worker = processes.with_pid(pid)
        if worker is None:
            continue
        with worker.frozen():
            if not _is_at_work(worker, running(app, queue).get(pid, []), folder, charged=charged):
                continue
            worker.kill()
        at = time.time()
        return Kill(worker.number, pid, at, running(app, queue).get(pid, []))
    return None


def _is_at_work(worker: WorkerProcess, held: list[JobRecord], folder: Folder, *, charged: bool) -> bool:
    """Do both the database and the worker's own log say that it is in the middle of a job?"""
    claims = {(job.id, job.claims) for job in held if job.started_at is not None or not charged}
    if not claims:
        return False
    runs = run_log.runs_of(folder.runs, worker.number)
    return any(run.ended is None and (run.job, run.claims) in claims for run in runs)


def _pid_of(owner: str) -> int:
    """Return the process id in a worker's name, `host:pid:token`."""
    _, _, rest = owner.rpartition(":")[0].rpartition(":")
    return int(rest) if rest.isdigit() else 0
