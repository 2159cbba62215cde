"""`dibs migrate`: bring the tables up to date, or print the SQL for whoever may."""

from __future__ import annotations

import click

from dibs import migrations
from dibs.app import Dibs
from dibs.cli.options import url_option
from dibs.errors import ConfigurationError


@click.command()
@click.option("--sql", is_flag=True, help="Print the SQL and connect to nothing; a URL of only a scheme:// will do.")
@url_option
@click.pass_obj
def migrate(url: str | Dibs | None, sql: bool) -> None:
    """Make or update the tables of dibs.

    Safe to run again, and by several at once. Workers of the version before go on working.
    """
    if sql:
        click.echo(_script(url))
        return
    dibs = url if isinstance(url, Dibs) else Dibs(url)
    applied = dibs.migrate()
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo(f"nothing to do: the tables in {dibs.url} are up to date")


def _script(url: str | Dibs | None) -> str:
    """Return all migrations as one script."""
    try:
        dialect = url.dialect if isinstance(url, Dibs) else Dibs(url).dialect
    except ConfigurationError:
        if not isinstance(url, str) or not url.endswith("://"):
            raise
        dialect = Dibs(f"{url}/any").dialect  # where the scheme alone is not enough, any path will do
    parts = [f"-- The tables of dibs for {dialect.name}, version {migrations.SCHEMA}."]
    parts += [f"{statement};" for statement in dialect.make_room()]
    parts += [f"-- {number:04} {name}\n{text.strip()}" for number, name, text in migrations.files(dialect)]
    return "\n\n".join(parts)
