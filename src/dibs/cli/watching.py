"""`--watch`: show something again and again, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from dibs.errors import DatabaseUnavailable

#: How often (seconds) it is looked again.
EVERY = 2.0

watch_option: Callable[[Any], Any] = click.option(
    "--watch", is_flag=True, help=f"Show it again every {EVERY:g} s, until Ctrl-C."
)


def show(what: Callable[[], None], *, watch: bool) -> None:
    """Call what shows something, once or, to `watch` it, again and again until Ctrl-C.

    At a terminal each look is on a screen of its own. While the database is away that is said, and waited for.
    """
    if not watch:
        what()
        return
    try:
        while True:
            click.clear()  # does nothing where it is no terminal
            try:
                what()
            except DatabaseUnavailable as error:
                click.echo(f"dibs: {error}", err=True)
            time.sleep(EVERY)
    except KeyboardInterrupt:
        return  # it was asked for until then
