"""`dibs run`: one given job, now and here, as a worker would run it; or who has it instead."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from dibs.app import Dibs
from dibs.cli.apps import load, load_tasks
from dibs.cli.logs import log_to_stderr
from dibs.cli.options import app_option, job_id, json_option, place_of, url_option
from dibs.cli.output import cell, print_json, printable
from dibs.errors import DatabaseError, JobNotFound
from dibs.holders import LockHolder, described
from dibs.jobs import JobRecord
from dibs.states import State
from dibs.worker.given import GivenWorker

NOT_DONE = 1
NOT_TAKEN = 2
INTERRUPTED = 130

_ENDED = {
    State.DONE: "is done already: dibs requeue {id} --force sends it round again, then run it",
    State.FAILED: "has failed: dibs requeue {id} sends it round again, then run it",
    State.CANCELLED: "was cancelled: dibs requeue {id} sends it round again, then run it",
}


@click.command()
@click.argument("number", metavar="ID", type=job_id)
@click.option("-v", "--verbose", is_flag=True, help="Show what a worker logs.")
@json_option
@app_option
@url_option
@click.pass_context
def run(context: click.Context, /, number: int, verbose: bool, as_json: bool) -> None:
    """Run one job now, here.

    Also one that is scheduled, that waits for its retry, or whose queue is paused. In this process and as a worker would: with
    a lease that is renewed, its attempt counted, its result stored, its retry set. What it prints goes to stdout, or with
    --json to stderr. It leaves with 0 if the job is done, 1 if not, 2 if it could not be taken; then it is said who has it.
    """
    url: str | Dibs | None = context.obj
    place = place_of(context)
    dibs = load(place, url)
    load_tasks(dibs, place)
    try:
        context.exit(_run(dibs, number, as_json=as_json, verbose=verbose))
    finally:
        dibs.close()


def _run(dibs: Dibs, number: int, *, as_json: bool, verbose: bool) -> int:
    try:
        job = dibs.job(number)
    except JobNotFound as error:
        click.echo(f"dibs: {error}", err=True)
        if as_json:
            print_json({"id": number, "taken": False, "reason": "not_found"})
        return NOT_TAKEN
    if job.status is not State.READY:
        return _refuse(dibs, job, as_json=as_json)
    if dibs.task_named(job.task) is None:
        return _say_no(job, f"is of {job.task}, and the app has no such task", "unknown_task", as_json=as_json)
    if job.queue in {row[0] for row in dibs.store.run(dibs.dialect.paused)}:
        click.echo(f"dibs: {job.queue} is paused; this job is run all the same", err=True)
    log_to_stderr(logging.DEBUG if verbose else logging.WARNING)
    worker = GivenWorker(dibs, job)
    began = time.monotonic()
    with _stdout_is_stderr() if as_json else contextlib.nullcontext():
        worker.run(signals=True)
    ran = time.monotonic() - began
    if not worker.taken:
        return _refuse(dibs, _again(dibs, number) or job, as_json=as_json, locked=worker.locked)
    return _tell(_again(dibs, number), job, worker, ran, as_json=as_json)


def _again(dibs: Dibs, number: int) -> JobRecord | None:
    """Look the job up once more; one whose retention is 0 is gone when it has ended."""
    try:
        return dibs.job(number)
    except JobNotFound:
        return None


# -- what became of it -------------------------------------------------------------------------------


def _tell(now: JobRecord | None, before: JobRecord, worker: GivenWorker, ran: float, *, as_json: bool) -> int:
    ended = worker.ended or "released"
    attempt = before.attempts + 1
    result = None if now is None else now.result
    error = None if now is None or ended == "done" else _error(now)
    if as_json:
        print_json(
            {
                "id": before.id,
                "taken": True,
                "ended": ended,
                "status": None if now is None else now.status,
                "attempt": attempt,
                "ran": round(ran, 3),
                "result": result,
                "error": error,
                "run_at": now.run_at if now is not None and now.status is State.READY else None,
            }
        )
    else:
        again = f", again at {cell(now.run_at)}" if now is not None and now.status is State.READY else ""
        click.echo(f"{ended} {before.id}, attempt {attempt} of {before.max_attempts}{again}")
        if result is not None:
            click.echo(printable(msgspec.json.format(msgspec.json.encode(result), indent=2).decode()))
        if error:
            click.echo(printable(error.rstrip()), err=True)
    if ended == "done":
        return 0
    return INTERRUPTED if worker.stopped and ended == "released" else NOT_DONE


def _error(job: JobRecord) -> str | None:
    """Return what went wrong: of a job that is tried again it stands with its attempts."""
    if job.error:
        return job.error
    last: dict[str, Any] = job.errors[-1] if job.errors else {}
    text: str | None = last.get("error")
    return text


# -- why it could not be taken ------------------------------------------------------------------------


def _refuse(dibs: Dibs, job: JobRecord, *, as_json: bool, locked: bool = False) -> int:
    if job.status is State.RUNNING:
        who = f"{job.lease_owner} has it, lease until {cell(job.lease_until)}"
        return _say_no(job, f"is running: {who}", "running", as_json=as_json)
    if job.status in _ENDED:
        return _say_no(job, _ENDED[job.status].format(id=job.id), str(job.status), as_json=as_json)
    if not locked:
        return _say_no(job, "was taken and given back by another just now: try again", "changed", as_json=as_json)
    holders: list[LockHolder] = []
    with contextlib.suppress(DatabaseError):
        report = dibs.locks()
        holders = [each for each in report.holders if job.id in each.jobs] or report.holders
    whose = "a transaction" if len(holders) < 2 else "one of these transactions"
    who = "; ".join(f"{described(each)}. To end it: {each.ends_with}" for each in holders)
    return _say_no(
        job,
        f"is held by {whose}: {who or 'nobody can be seen who holds it, it may be over'}",
        "locked",
        as_json=as_json,
        holders=holders,
    )


def _say_no(job: JobRecord, why: str, reason: str, *, as_json: bool, holders: list[LockHolder] | None = None) -> int:
    click.echo(f"dibs: job {job.id} {cell(why)}", err=True)
    if as_json:
        print_json(
            {
                "id": job.id,
                "taken": False,
                "reason": reason,
                "status": job.status,
                "worker": job.lease_owner if job.status is State.RUNNING else None,
                "lease_until": job.lease_until if job.status is State.RUNNING else None,
                "holders": holders or [],
            }
        )
    return NOT_TAKEN


@contextlib.contextmanager
def _stdout_is_stderr() -> Iterator[None]:
    """Let what a job prints, and what its processes print, go to stderr: stdout is for the one JSON value."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 1)
        os.close(kept)
