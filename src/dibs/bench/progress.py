"""The bar on stderr that says how far a measure is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

#: How often (seconds) the bar is drawn anew. Drawn for each job it would take longer than the job.
REDRAW = 0.1


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a bar for as long as the block; yield what is told how much more is done. Without a terminal a line."""
    if not sys.stderr.isatty():
        click.echo(f"  {label}", err=True)
        yield lambda more: None
        return
    with click.progressbar(length=length, label=f"  {label:<24}", file=sys.stderr) as bar:
        undrawn, drawn = 0, time.monotonic()

        def step(more: int) -> None:
            nonlocal undrawn, drawn
            undrawn += more
            if (now := time.monotonic()) - drawn >= REDRAW:
                bar.update(undrawn)
                undrawn, drawn = 0, now

        yield step
        bar.update(undrawn)
