"""`dibs cancel`: end jobs that have not ended."""

from __future__ import annotations

import click

from dibs.app import Dibs
from dibs.cli.options import job_ids_argument, pass_dibs


@click.command()
@job_ids_argument
@click.option("--reason", help="Kept with the job.")
@pass_dibs
def cancel(dibs: Dibs, job_ids: tuple[int, ...], reason: str | None) -> None:
    """Cancel jobs that have not ended.

    A running one is asked to end; whatever it then does, it ends cancelled and is not retried.
    """
    moved = dibs.cancel(job_ids, reason=reason)
    for job_id in moved:
        click.echo(f"cancelled {job_id}")
    if left := sorted(set(job_ids) - set(moved)):
        raise click.ClickException(f"ended already, or never were: {', '.join(map(str, left))}")
