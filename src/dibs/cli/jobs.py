"""`dibs jobs`: a list of jobs."""

from __future__ import annotations

import click

from dibs.app import Dibs
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import print_json, print_table
from dibs.jobs import JobRecord
from dibs.states import State


@click.command()
@click.option("--status", type=click.Choice([str(state) for state in State]), help="Only those in this status.")
@click.option("-q", "--queue", metavar="QUEUE", help="Only those of this queue.")
@click.option("--limit", metavar="N", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@click.option("--before", metavar="ID", type=click.IntRange(1), help="Only older ones, to go on from the last page.")
@json_option
@pass_dibs
def jobs(dibs: Dibs, status: str | None, queue: str | None, limit: int, before: int | None, as_json: bool) -> None:
    """List jobs, newest first."""
    found = dibs.jobs(status=status, queue=queue, limit=limit, **({} if before is None else {"before": before}))
    if as_json:
        print_json(found)
    elif found:
        header = ["ID", "STATUS", "QUEUE", "TASK", "ATTEMPTS", "SINCE OR DUE", "KEY"]
        print_table(header, [_row(job) for job in found])
    else:
        click.echo("no such jobs", err=True)


def _row(job: JobRecord) -> list[object]:
    moment = job.finished_at or (job.started_at if job.status is State.RUNNING else None) or job.run_at
    return [job.id, job.status, job.queue, job.task, f"{job.attempts}/{job.max_attempts}", moment, job.task_key]
