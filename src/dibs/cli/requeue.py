"""`dibs requeue`: send ended jobs round again."""

from __future__ import annotations

import click

from dibs.app import Dibs
from dibs.cli.options import job_ids_argument, pass_dibs
from dibs.errors import KeyTaken


@click.command()
@job_ids_argument
@click.option("--force", is_flag=True, help="Done ones, too.")
@pass_dibs
def requeue(dibs: Dibs, job_ids: tuple[int, ...], force: bool) -> None:
    """Put failed or cancelled jobs back in their queues.

    They are due now, and their attempts start from 0.
    """
    problems = []
    try:
        moved = dibs.requeue(job_ids, force=force)
        refused = set[int]()
    except KeyTaken as error:
        moved, refused = error.moved, set(error.holders)
        problems.append(str(error))
    for job_id in moved:
        click.echo(f"requeued {job_id}")
    if left := sorted(set(job_ids) - set(moved) - refused):
        problems.append(f"not {'ended' if force else 'failed or cancelled'}: {', '.join(map(str, left))}")
    if problems:
        raise click.ClickException("; ".join(problems))
