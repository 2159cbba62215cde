"""`dibs jobs`: a list of jobs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dibs.app import Dibs
from dibs.cli.choosing import filter_options
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import print_json, print_table
from dibs.filters import Filters
from dibs.jobs import JobRecord
from dibs.states import State


@click.command()
@filter_options()
@click.option("--limit", metavar="N", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@click.option("--before", metavar="ID", type=click.IntRange(1), help="Only older ones, to go on from the last page.")
@json_option
@pass_dibs
def jobs(dibs: Dibs, which: Filters, limit: int, before: int | None, as_json: bool) -> None:
    """List jobs, newest first."""
    found = dibs.jobs(limit=limit, before=2**62 if before is None else before, **which)
    if as_json:
        print_json(found)
    elif found:
        print_jobs(found)
    else:
        click.echo("no such jobs", err=True)


def print_jobs(found: Sequence[JobRecord], *, err: bool = False) -> None:
    """Print a table of jobs."""
    header = ["ID", "STATUS", "QUEUE", "TASK", "ATTEMPTS", "SINCE OR DUE", "KEY"]
    print_table(header, [_row(job) for job in found], err=err)


def _row(job: JobRecord) -> list[object]:
    moment = job.finished_at or (job.started_at if job.status is State.RUNNING else None) or job.run_at
    return [job.id, job.status, job.queue, job.task, f"{job.attempts}/{job.max_attempts}", moment, job.task_key]
