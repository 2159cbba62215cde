"""Compares what the processes wrote down with what the queue says, when all is over. Pure: it is handed both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from faults.book import Entry

FINAL = ("done", "failed", "cancelled")
TRANSFER = "ledger.transfer"

#: Seconds before a run was seen to be taken in which something must have been done to its worker, in leases: what cost it
#: the lease may be over by then.
MEMORY = 4.0


@dataclass(frozen=True)
class Row:
    """A job as the queue has it."""

    id: int
    task: str
    payload: dict[str, Any]
    status: str
    claims: int
    attempts: int
    crashes: int
    key: str | None
    result: Any
    error: str | None

    @property
    def number(self) -> int:
        """The producer's number of the request. Of a transfer it is the amount."""
        return int(self.payload["cents" if self.task == TRANSFER else "number"])


#: The columns of a `Row`; JSON as text. The status of a running job whose lease is past can be told by `lease`.
ROWS = "SELECT id, task, {payload}, status, claims, attempts, crashes, task_key, {result}, error FROM dibs_jobs"


def row(values: Sequence[Any]) -> Row:
    number, task, payload, status, claims, attempts, crashes, key, result, error = values
    decoded = None if result is None else msgspec.json.decode(result)
    return Row(number, task, msgspec.json.decode(payload), status, claims, attempts, crashes, key, decoded, error)


@dataclass
class Run:
    """One run of a job: who began it and when, and how it ended, where it did."""

    pid: int
    claims: int
    at: float
    end: float | None = None
    raised: str | None = None


@dataclass
class Comparison:
    """What was found."""

    violations: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def compare(
    rows: Iterable[Row],
    entries: Sequence[Entry],
    *,
    harms: Mapping[int, Sequence[tuple[float, float, str]]],
    lease: float,
) -> Comparison:
    """Look for what must not be. `harms` is what was done to each process: `(from, to, what)`, monotonic."""
    jobs = {each.id: each for each in rows}
    runs = _runs(entries)
    found = Comparison()
    _requests(found, jobs, entries)
    for job in jobs.values():
        _ending(found, job, runs.get(job.id, []))
    for job_id in runs.keys() - jobs.keys():
        found.violations.append(f"job {job_id} was run, and the queue does not have it")
    for job_id, of_job in runs.items():
        _taken(found, job_id, of_job, harms, lease)
    found.counts |= {
        "jobs": len(jobs),
        **{status: sum(job.status == status for job in jobs.values()) for status in FINAL},
        "runs": sum(map(len, runs.values())),
        "jobs claimed again": sum(job.claims > 1 for job in jobs.values()),
        "leases that ran out": sum(job.crashes for job in jobs.values()),
        "finishes refused": sum(run.raised == "LostClaim" for of_job in runs.values() for run in of_job),
        "transfers": sum(job.task == TRANSFER for job in jobs.values()),
    }
    return found


def _runs(entries: Sequence[Entry]) -> dict[int, list[Run]]:
    runs: dict[int, list[Run]] = defaultdict(list)
    last: dict[tuple[int, int, int], Run] = {}
    for entry in entries:
        key = (entry.pid, entry.job, entry.claims)
        if entry.event == "start":
            last[key] = Run(entry.pid, entry.claims, entry.at)
            runs[entry.job].append(last[key])
        elif entry.event in ("end", "raised") and key in last:
            last[key].end = entry.at
            last[key].raised = entry.detail if entry.event == "raised" else None
    return runs


# -- requests and jobs -------------------------------------------------------------------------------------


def _requests(found: Comparison, jobs: Mapping[int, Row], entries: Sequence[Entry]) -> None:
    """Every request that was answered has its job, once; one that was rolled back or refused has none."""
    by_number: dict[int, list[Row]] = defaultdict(list)
    for job in jobs.values():
        by_number[job.number].append(job)
    asked: dict[int, str] = {}
    got: dict[int, set[int]] = defaultdict(set)
    nothing: dict[int, str] = {}
    counts = dict.fromkeys(("requests", "rolled back", "refused", "unknown"), 0)
    for entry in entries:
        match entry.event:
            case "asked":
                asked[entry.number] = entry.detail
                counts["requests"] += 1
            case "got":
                got[entry.number].add(entry.job)
            case "rolled back" | "refused" | "unknown":
                counts[entry.event] += 1
                if entry.event != "unknown":
                    nothing[entry.number] = entry.event
    for number, ids in got.items():
        there = {job.id for job in by_number.get(number, [])}
        if there != ids:
            found.violations.append(f"request {number} was answered with jobs {sorted(ids)}, there are {sorted(there)}")
    for number, event in nothing.items():
        for job in by_number.get(number, []):
            found.violations.append(f"request {number} was {event}, and there is job {job.id}")
    for number, of_number in by_number.items():
        if len(of_number) > 1 and number not in got:
            found.violations.append(f"request {number} has jobs {sorted(job.id for job in of_number)}")
        if not of_number[0].key and number not in asked and number not in got:
            first = next((each for each in range(number, number - 10, -1) if each in asked), None)
            if first is None or asked[first] != "bulk":
                found.violations.append(
                    f"jobs {[job.id for job in of_number]} are there, and nobody asked for {number}"
                )
    for number, detail in asked.items():
        if detail == "bulk":
            parts = sum(bool(by_number.get(number + place)) for place in range(5))
            if parts not in (0, 5):
                found.violations.append(f"the bulk {number} is there in part: {parts} of 5")
    found.counts |= counts


# -- runs and ends -----------------------------------------------------------------------------------------


def _ending(found: Comparison, job: Row, runs: Sequence[Run]) -> None:
    """A job is in one final state, which is that of its last claim, and no success is without its effect."""
    what = f"job {job.id} ({job.task})"
    if job.status not in FINAL:
        found.violations.append(f"{what} is still {job.status}: claims {job.claims}, attempts {job.attempts}")
        return
    if any(run.claims > job.claims for run in runs):
        found.violations.append(f"{what} is {job.status} at claim {job.claims}, and was begun at a later one")
    claimed = [run.claims for run in runs]
    if len(set(claimed)) != len(claimed):
        found.violations.append(f"{what} was begun twice under the same claim: {claimed}")
    last = next((run for run in runs if run.claims == job.claims), None)
    if job.status == "done":
        if last is None:
            found.violations.append(f"{what} is done at claim {job.claims}, at which it was never begun")
        elif job.task != TRANSFER:  # whose effects are in the database
            if job.result != job.claims:
                found.violations.append(f"{what} is done at claim {job.claims} with the result of claim {job.result}")
            if last.end is None or last.raised:
                found.violations.append(f"{what} is done, and its last run had no effect")
    elif job.status == "failed":
        by_its_task = job.task == "faults.fail" and f"claim {job.claims} fails" in (job.error or "")
        if not by_its_task and "lease ran out" not in (job.error or ""):
            found.violations.append(f"{what} failed: {(job.error or '').strip().splitlines()[-1:]}")
    else:
        found.violations.append(f"{what} is {job.status}, and nobody asked for that")


def _taken(
    found: Comparison,
    job_id: int,
    runs: Sequence[Run],
    harms: Mapping[int, Sequence[tuple[float, float, str]]],
    lease: float,
) -> None:
    """A job that is begun again was raised out of, or taken from a worker to which something had been done."""
    in_order = sorted(runs, key=lambda run: run.claims)
    for earlier, later in pairwise(in_order):
        if earlier.raised is not None and earlier.end is not None and earlier.end <= later.at:
            continue
        since = later.at - MEMORY * lease
        if not any(start <= later.at and end >= since for start, end, _ in harms.get(earlier.pid, [])):
            how = "was still at it" if earlier.end is None or earlier.end > later.at else "had ended it"
            found.violations.append(
                f"job {job_id} was begun at claim {later.claims} by pid {later.pid}, though pid {earlier.pid}, to which "
                f"nothing had been done, {how} at claim {earlier.claims}"
            )
