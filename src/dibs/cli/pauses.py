"""`dibs pause` and `dibs resume`: stop a queue, and let it go on. Said twice, each is as good as said once."""

from __future__ import annotations

import click

from dibs.app import Dibs
from dibs.cli.options import pass_dibs, queue_argument


@click.command()
@queue_argument
@pass_dibs
def pause(dibs: Dibs, queue: str) -> None:
    """Let no job of a queue start any more.

    On any worker, until it is resumed; what runs goes on.
    """
    click.echo(f"paused {queue}" if dibs.pause(queue) else f"{queue} was paused already")


@click.command()
@queue_argument
@pass_dibs
def resume(dibs: Dibs, queue: str) -> None:
    """Let a paused queue go on."""
    click.echo(f"resumed {queue}" if dibs.resume(queue) else f"{queue} was not paused")
