"""An order for many jobs: counted first, confirmed, carried out in small transactions, and interrupted without guessing
how far it got.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, TypeVar

import click

from dibs import wording
from dibs.app import Dibs
from dibs.cli.jobs import print_jobs
from dibs.cli.output import print_json
from dibs.cli.problems import WrongUsage
from dibs.selections import ID_BATCH, Selection

T = TypeVar("T", bound=tuple[Any, ...])

#: So many of the jobs are shown before anything is done to them.
SAMPLES = 5

bulk_options = [
    click.option("--dry-run", is_flag=True, help="With filters: only count them and show a few; change nothing."),
    click.option("--yes", is_flag=True, help="With filters: do not ask."),
    click.option("--json", "as_json", is_flag=True, help="With filters: print the numbers as JSON."),
]


def takes_bulk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(bulk_options):
        function = option(function)
    return function


def agreed(dibs: Dibs, selection: Selection, verb: str, *, dry_run: bool, yes: bool, as_json: bool) -> int | None:
    """Count the jobs and ask; return how many they are, None where nothing is to be done about them."""
    number = selection.count()
    if dry_run:
        samples = [dibs.shown(job) for job in selection.newest(SAMPLES)]
        if as_json:
            print_json({"matching": number, "samples": samples})
            return None
        click.echo(f"would {verb} {wording.jobs(number)}{', the newest of them:' if number > SAMPLES else ''}")
        if samples:
            print_jobs(samples)
        return None
    if yes or not number:
        return number
    if not sys.stdin.isatty():
        raise WrongUsage(
            f"{verb} {wording.jobs(number)}? Say --yes if so: stdin is no terminal, so nobody can be asked. "
            "--dry-run shows which they are"
        )
    print_jobs([dibs.shown(job) for job in selection.newest(SAMPLES)], err=True)
    if not click.confirm(f"{verb} {wording.jobs(number)}?", err=True):
        raise click.ClickException("nothing was changed")
    return number


class Interrupted:
    """Whether Ctrl-C was pressed. The first lets the transaction under way end, the second ends the command at once."""

    def __init__(self) -> None:
        self.once = False

    def heard(self, number: int, frame: FrameType | None) -> None:
        if self.once:
            raise KeyboardInterrupt
        self.once = True


@contextmanager
def heeding() -> Iterator[Interrupted]:
    """Heed Ctrl-C between two transactions."""
    interrupted = Interrupted()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, interrupted.heard)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def each(parts: Iterator[T], number: int, label: str, interrupted: Interrupted) -> Iterator[T]:
    """Yield the parts of the work, with a bar for whoever watches, until it is done or interrupted.

    A part begins with how many of the `number` jobs it was about.
    """
    watched = sys.stderr.isatty() and number > ID_BATCH
    bar = click.progressbar(length=number, label=label, file=sys.stderr) if watched else None
    with bar or nullcontext():
        for part in parts:
            if bar is not None:
                bar.update(part[0])
            yield part
            if interrupted.once:
                return


def tell_rest(number: int, done: int, interrupted: Interrupted) -> None:
    """Say what became of the others; end the command if it was interrupted."""
    rest = number - done
    if interrupted.once:
        click.echo(f"dibs: interrupted: {wording.jobs(rest)} left as they were; the same command goes on", err=True)
        raise click.exceptions.Exit(130)
    if rest > 0:
        click.echo(
            f"dibs: {wording.jobs(rest)} left as they were: changed meanwhile, or held by somebody's transaction; "
            "the same command tries again",
            err=True,
        )
