"""`dibs workers`: who works on the queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import click

from dibs.app import Dibs
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import cell, print_json, print_table
from dibs.cli.watching import show, watch_option
from dibs.register import WorkerRecord

#: Characters of a list of queues, at most; `--json` has all.
LONGEST_CELL = 40


@click.command()
@json_option
@watch_option
@pass_dibs
def workers(dibs: Dibs, as_json: bool, watch: bool) -> None:
    """Show who works on the queue, and how they fare.

    As they say themselves, every ten seconds at least, and sooner when something changes. One that has not been seen for 35
    seconds is quiet: killed, frozen or cut off; its row goes after ten minutes. No job depends on any of this.
    """
    show(partial(_show, dibs, as_json=as_json), watch=watch)


def _show(dibs: Dibs, *, as_json: bool) -> None:
    found = dibs.workers()
    if as_json:
        print_json(found)
    elif found:
        _print(found)
    else:
        click.echo(f"no workers in {dibs.url}", err=True)


def _print(found: Sequence[WorkerRecord]) -> None:
    header = [
        "WORKER",
        "STATE",
        "SEEN",
        "VERSION",
        "QUEUES",
        "TASKS",
        "BUSY",
        "CLAIMS",
        "DONE/S",
        "FAILED/S",
        "LAST CLAIM",
    ]
    print_table(header, [_row(worker) for worker in found])
    for worker in found:
        if worker.last_error is not None and worker.last_error_at is not None:
            since = ago((worker.seen_at - worker.last_error_at).total_seconds() + worker.seen_ago)
            click.echo(f"{cell(worker.worker)}: {since} {cell(worker.last_error)}")


def _row(worker: WorkerRecord) -> list[object]:
    stuck = sum(slots.stuck for slots in worker.slots)
    busy = ", ".join(f"{slots.busy}/{slots.size} {slots.kind}" for slots in worker.slots)
    return [
        worker.worker,
        worker.state,
        ago(worker.seen_ago),
        worker.version,
        _queues(worker),
        len(worker.tasks) + worker.tasks_left_out,
        f"{busy}, {stuck} stuck" if stuck else busy,
        worker.claims,
        f"{worker.done_rate:.3g}",
        f"{worker.failed_rate:.3g}",
        _last_claim(worker),
    ]


def _queues(worker: WorkerRecord) -> str:
    if worker.queues is None:
        return "all"
    shown: list[str] = []
    for queue in worker.queues:
        if shown and len(", ".join([*shown, queue])) > LONGEST_CELL:
            break
        shown.append(queue)
    more = len(worker.queues) - len(shown) + worker.queues_left_out
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _last_claim(worker: WorkerRecord) -> str:
    at: datetime | None = worker.claimed_at
    if at is None:
        return "none yet"
    return f"{ago((worker.seen_at - at).total_seconds() + worker.seen_ago)} of {worker.claimed_queue}"


def ago(seconds: float) -> str:
    """Return how long ago something was, for a person to read.

    >>> ago(0.4), ago(75), ago(3600 * 30)
    ('0 s ago', '75 s ago', '30 h ago')
    """
    for length, unit in ((86_400 * 2, "d"), (7_200, "h"), (120, "min")):
        if seconds >= length:
            return f"{seconds / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
