"""`dibs show`: one job in full."""

from __future__ import annotations

import click
import msgspec

from dibs.app import Dibs
from dibs.cli.options import job_id, json_option, pass_dibs
from dibs.cli.output import cell, print_json, printable
from dibs.jobs import JobRecord

#: Shown at the end, each under a line of its own.
LONG = ("payload", "meta", "progress", "checkpoint", "result", "error", "errors")


@click.command()
@click.argument("number", metavar="ID", type=job_id)
@json_option
@pass_dibs
def show(dibs: Dibs, number: int, as_json: bool) -> None:
    """Show all about one job.

    With the last errors, and how many enqueues with the same key were refused for its sake.
    """
    job = dibs.job(number)
    if as_json:
        print_json(job)
        return
    for name in JobRecord.__struct_fields__:
        value = getattr(job, name)
        if name not in LONG and value is not None:
            click.echo(f"{name:20}{cell(value)}")
    for name in LONG[:-2]:
        if (value := getattr(job, name)) is not None:
            _section(name, msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    for error in job.errors:
        misfits = error.get("misfits")
        what = f"not begun, {misfits} times running, at last" if misfits else f"attempt {error.get('attempt')}"
        _section(f"{what} {error.get('at', '')}".rstrip(), error.get("error", ""))
    if job.error and not any(error.get("error") == job.error for error in job.errors):
        _section("error", job.error)


def _section(name: str, text: str) -> None:
    click.echo(f"\n{name}:\n{printable(text.rstrip())}")
