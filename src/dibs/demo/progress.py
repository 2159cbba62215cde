"""Says on stderr how far the demo is: a line that moves on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time

import click

#: How often (seconds) the moving line is drawn anew, and how far apart plain lines are.
REDRAW = 0.1
PLAIN_EVERY = 2.0

WIDEST = 40
_CLEAR = "\r\x1b[2K"


class Progress:
    """How many of `total` files are done."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._moving = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""
        self._last = time.monotonic()
        self._last_done = 0

    def say(self, text: str) -> None:
        """Print a line above what moves."""
        self.clear()
        click.echo(text, err=True)
        self._draw()

    def at(self, done: int) -> None:
        """Show that this many are done."""
        now = time.monotonic()
        if now - self._last < (REDRAW if self._moving else PLAIN_EVERY):
            return
        self._last = now
        if self._moving:
            self._shown = self._line(done)
            self._draw()
        elif done != self._last_done:
            click.echo(f"  {done:,} of {self._total:,} files", err=True)
            self._last_done = done

    def clear(self) -> None:
        """Take the moving line away."""
        if self._shown:
            click.echo(_CLEAR, nl=False, err=True)

    def end(self) -> None:
        """Take the moving line away for good."""
        self.clear()
        self._shown = ""

    def _draw(self) -> None:
        if self._shown:
            click.echo(_CLEAR + self._shown, nl=False, err=True)

    def _line(self, done: int) -> str:
        figures = f"{done:,} of {self._total:,} files"
        width = min(WIDEST, shutil.get_terminal_size().columns - len(figures) - 6)
        if width < 4:
            return figures
        filled = width * done // max(self._total, 1)
        return f"  [{'#' * filled}{'-' * (width - filled)}] {figures}"
