"""`dibs requeue`: send ended jobs round again."""

from __future__ import annotations

import click

from dibs import wording
from dibs.app import Dibs
from dibs.cli import bulk
from dibs.cli.choosing import by_filters, filter_options
from dibs.cli.options import job_ids_argument, pass_dibs
from dibs.cli.output import print_json
from dibs.errors import KeyTaken
from dibs.filters import Filters

#: So many refused jobs are named, with the holders of their keys.
NAMED = 10


@click.command()
@job_ids_argument
@filter_options()
@click.option("--force", is_flag=True, help="Done ones, too.")
@bulk.takes_bulk_options
@pass_dibs
def requeue(
    dibs: Dibs, job_ids: tuple[int, ...], which: Filters, force: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Put failed or cancelled jobs back in their queues.

    Name them by ID, or choose them by filters, all of which must fit: those are counted first, and you are asked. By
    filters only failed ones are meant, unless --status says otherwise. They are due now, and their attempts start
    from 0.
    """
    if by_filters(job_ids, which, **{"dry-run": dry_run, "yes": yes, "json": as_json}):
        _by_filters(dibs, which, force=force, dry_run=dry_run, yes=yes, as_json=as_json)
        return
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


def _by_filters(dibs: Dibs, which: Filters, *, force: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    selection = dibs.to_requeue(force=force, **which)
    number = bulk.agreed(dibs, selection, "requeue", dry_run=dry_run, yes=yes, as_json=as_json)
    if number is None:
        return
    moved = 0
    refused: dict[int, int] = {}
    with bulk.heeding() as interrupted:
        for _, now_moved, now_refused in bulk.each(selection.requeue(force=force), number, "requeueing", interrupted):
            moved += len(now_moved)
            refused |= now_refused
    if as_json:
        left = number - moved - len(refused)
        print_json({"matching": number, "requeued": moved, "refused": list(refused), "left": left})
    else:
        click.echo(f"requeued {wording.jobs(moved)}")
    bulk.tell_rest(number, moved + len(refused), interrupted)
    if refused:
        named = dict(sorted(refused.items())[:NAMED])
        more = f"; and {len(refused) - NAMED:,} more" if len(refused) > NAMED else ""
        raise click.ClickException(f"{KeyTaken(named, [])}{more}")
