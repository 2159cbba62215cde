"""`dibs migrate`: bring the tables up to date, or print the SQL for whoever may."""

from __future__ import annotations

import click

from dibs import migrations
from dibs.app import Dibs
from dibs.cli.options import app_option, dibs_of, url_option
from dibs.errors import ConfigurationError


@click.command()
@click.option("--sql", is_flag=True, help="Print the SQL and connect to nothing; a URL of only a scheme:// will do.")
@url_option
@app_option
@click.pass_context
def migrate(context: click.Context, sql: bool) -> None:
    """Make or update the tables of dibs.

    Safe to run again, and by several at once. Workers of the version before go on working.
    """
    if sql:
        click.echo(_script(context))
        return
    dibs = dibs_of(context)
    applied = dibs.migrate()
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo(f"nothing to do: the tables in {dibs.url} are up to date")


def _script(context: click.Context) -> str:
    """Return all migrations as one script."""
    url = context.obj
    try:
        dialect = dibs_of(context).dialect
    except ConfigurationError:
        if not isinstance(url, str) or not url.endswith("://"):
            raise
        dialect = Dibs(f"{url}/any").dialect  # where the scheme alone is not enough, any path will do
    parts = [f"-- The tables of dibs for {dialect.name}, version {migrations.SCHEMA}."]
    parts += [f"{statement};" for statement in dialect.make_room()]
    parts += [f"-- {number:04} {name}\n{text.strip()}" for number, name, text in migrations.files(dialect)]
    return "\n\n".join(parts)
