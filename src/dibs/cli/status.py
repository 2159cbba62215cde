"""`dibs status`: what is in the queues."""

from __future__ import annotations

import click

from dibs.app import Dibs
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import cell, print_json, print_table
from dibs.states import State


@click.command()
@json_option
@pass_dibs
def status(dibs: Dibs, as_json: bool) -> None:
    """Show how many jobs each queue has, and what is paused.

    Reads every row of the jobs' table.
    """
    counts = dibs.counts()
    paused = {queue: (at, by) for queue, at, by in dibs.store.run(dibs.dialect.paused)}
    queues = [
        {
            "queue": queue,
            **{str(state): counts.get(queue, {}).get(state, 0) for state in State},
            "paused_at": paused[queue][0] if queue in paused else None,
            "paused_by": paused[queue][1] if queue in paused else None,
        }
        for queue in sorted({*counts, *paused})
    ]
    if as_json:
        print_json({"database": str(dibs.url), "queues": queues})
    elif queues:
        header = ["QUEUE", *[state.upper() for state in State], ""]
        print_table(header, [[*list(row.values())[:-2], _note(row["paused_at"], row["paused_by"])] for row in queues])
    else:
        click.echo(f"no jobs in {dibs.url}", err=True)


def _note(paused_at: object, paused_by: object) -> str:
    return f"paused since {cell(paused_at)} by {paused_by}" if paused_at else ""
