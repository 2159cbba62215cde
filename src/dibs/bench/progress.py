"""The bar on stderr that says how far a measure is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a bar for as long as the block; yield what is told how much more is done. Without a terminal a line."""
    if not sys.stderr.isatty():
        click.echo(f"  {label}", err=True)
        yield lambda more: None
        return
    with click.progressbar(length=length, label=f"  {label:<24}", file=sys.stderr, update_min_steps=1) as bar:
        yield bar.update
