"""`dibs show`: one job in full."""

from __future__ import annotations

import click
import msgspec

from dibs.app import Dibs
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import cell, print_json, printable
from dibs.jobs import JobRecord

#: Shown at the end, each under a line of its own.
LONG = ("payload", "meta", "progress", "checkpoint", "result", "errors", "error")


@click.command()
@click.argument("job_id", metavar="ID", type=click.IntRange(min=0))
@json_option
@pass_dibs
def show(dibs: Dibs, job_id: int, as_json: bool) -> None:
    """Show all about one job.

    With the last errors, and how many enqueues with the same key were refused for its sake.
    """
    job = dibs.job(job_id)
    if as_json:
        print_json(job)
        return
    for name in JobRecord.__struct_fields__:
        value = getattr(job, name)
        if name not in LONG and value is not None:
            click.echo(f"{name:20}{cell(value)}")
    for name in LONG:
        value = getattr(job, name)
        if value is None or value == []:
            continue
        text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        click.echo(f"\n{name}:\n{printable(text.rstrip())}")
