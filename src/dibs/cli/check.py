"""`dibs check`: do the jobs that wait fit this code? The dry run before a deploy."""

from __future__ import annotations

import sys

import click

from dibs.app import Dibs
from dibs.checks import Checked, is_inline
from dibs.checks import check as check_jobs
from dibs.cli.apps import load, load_tasks
from dibs.cli.options import app_option, json_option, place_of, url_option
from dibs.cli.output import print_json, print_table
from dibs.states import State

#: So many jobs are looked at without a bar that says how far it is.
QUICK = 5_000


@click.command()
@click.argument("app", metavar="[APP]", required=False)
@app_option
@json_option
@url_option
@click.pass_context
def check(context: click.Context, /, app: str | None, as_json: bool) -> None:
    """Tell whether an app's code fits the jobs that wait.

    The dry run before a deploy: APP is module:attribute, such as myapp.jobs:app. Leaves with 1 if there are jobs that
    this code could not run: of a task that it does not know, or with arguments that do not fit. Changes nothing.
    """
    place = place_of(context, app)
    dibs = load(place, context.obj)
    load_tasks(dibs, place)
    checked = Checked(fits=False, inline=True) if is_inline(dibs) else _checked(dibs)
    if as_json:
        print_json(checked)
    else:
        _print(checked)
    if checked.inline:
        raise click.ClickException(
            f"{place} is a Dibs(inline=True), which runs tasks where they are enqueued and queues nothing: that is for "
            "tests, so leave it out in production"
        )
    if not checked.fits:
        bad = sum(finding.count for finding in (*checked.misfits, *checked.unknown))
        raise click.ClickException(f"{bad:,} of {checked.jobs:,} jobs that have not ended do not fit this code")


def _checked(dibs: Dibs) -> Checked:
    try:
        total, _, _ = dibs.store.run(lambda: dibs.dialect.span(State.READY))
        if total <= QUICK:
            return check_jobs(dibs)
        with click.progressbar(length=total, label=f"checking {total:,} jobs", file=sys.stderr) as bar:
            return check_jobs(dibs, seen=bar.update)
    finally:
        dibs.close()


def _print(checked: Checked) -> None:
    findings = [*checked.unknown, *checked.misfits]
    if findings:
        rows = [[each.task, each.count, _ids(each.ids, each.count), each.reason] for each in findings]
        print_table(["TASK", "JOBS", "IDS", "REASON"], rows)
    elif checked.fits:
        click.echo(f"all {checked.jobs:,} jobs that have not ended fit this code")
    schema = checked.schema
    if schema is not None and schema.tables < schema.code:
        click.echo(
            f"the tables are at version {schema.tables}, which this code can work on; it brings version {schema.code}: "
            "run `dibs migrate`",
            err=True,
        )
    if schema is not None and schema.tables > schema.code:
        click.echo(
            f"the tables are at version {schema.tables}, this code was written for {schema.code}; they say that it may "
            "work on them",
            err=True,
        )


def _ids(ids: list[int], count: int) -> str:
    return ", ".join(map(str, ids)) + ", …" * (count > len(ids))
