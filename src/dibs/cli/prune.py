"""`dibs prune`: what workers do by the way, now and to its end."""

from __future__ import annotations

import sys
import time

import click

from dibs.app import Dibs
from dibs.cli.options import pass_dibs
from dibs.worker.upkeep import prune as prune_for

#: How often (seconds) a person who watches is told how far it is.
TOLD_EVERY = 0.5


@click.command()
@pass_dibs
def prune(dibs: Dibs) -> None:
    """Delete finished jobs whose retention is over.

    In small batches, each in a transaction of its own. Workers do it, too.
    """
    deleted, ended, watched = 0, False, sys.stderr.isatty()
    while not ended:
        until = time.monotonic() + TOLD_EVERY
        deleted += prune_for(dibs.store, until=until)
        ended = time.monotonic() < until  # it stopped before its time was over: nothing is left
        if watched and not ended:
            click.echo(f"\r{deleted:,} pruned", nl=False, err=True)
    if watched and deleted:
        click.echo("\r\x1b[K", nl=False, err=True)
    click.echo(f"pruned {deleted}")
