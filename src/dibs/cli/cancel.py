"""`dibs cancel`: end jobs that have not ended."""

from __future__ import annotations

import click

from dibs import wording
from dibs.app import Dibs
from dibs.cli import bulk
from dibs.cli.choosing import by_filters, filter_options
from dibs.cli.options import job_ids_argument, pass_dibs
from dibs.cli.output import print_json
from dibs.filters import Filters
from dibs.orders import whoami


@click.command()
@job_ids_argument
@filter_options()
@click.option("--reason", help="Kept with the job.")
@bulk.takes_bulk_options
@pass_dibs
def cancel(
    dibs: Dibs,
    job_ids: tuple[int, ...],
    which: Filters,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel jobs that have not ended.

    Name them by ID, or choose them by filters, all of which must fit: those are counted first, and you are asked. A
    running one is asked to end; whatever it then does, it ends cancelled and is not retried.
    """
    if by_filters(job_ids, which, **{"dry-run": dry_run, "yes": yes, "json": as_json}):
        _by_filters(dibs, which, reason, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    moved = dibs.cancel(job_ids, reason=reason)
    for job_id in moved:
        click.echo(f"cancelled {job_id}")
    if left := sorted(set(job_ids) - set(moved)):
        raise click.ClickException(f"ended already, or never were: {', '.join(map(str, left))}")


def _by_filters(dibs: Dibs, which: Filters, reason: str | None, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    selection = dibs.to_cancel(**which)
    number = bulk.agreed(dibs, selection, "cancel", dry_run=dry_run, yes=yes, as_json=as_json)
    if number is None:
        return
    ended = asked = 0
    with bulk.heeding() as interrupted:
        work = selection.cancel(reason=reason, by=whoami())
        for _, done in bulk.each(work, number, "cancelling", interrupted):
            dibs.took_cancelled(done, reason)
            waited = sum(job.waited for job in done)
            ended += waited
            asked += len(done) - waited
    if as_json:
        print_json({"matching": number, "cancelled": ended, "asked": asked, "left": number - ended - asked})
    else:
        click.echo(f"cancelled {wording.jobs(ended)}" + (f", asked {asked:,} running to end" if asked else ""))
    bulk.tell_rest(number, ended + asked, interrupted)
