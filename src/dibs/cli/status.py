"""`dibs status`: what is in the queues."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import click

from dibs.app import Dibs
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import cell, print_json, print_table
from dibs.errors import DatabaseError, DatabaseUnavailable
from dibs.states import State


@click.command()
@json_option
@pass_dibs
def status(dibs: Dibs, as_json: bool) -> None:
    """Show how many jobs each queue has, and what is paused.

    Of the ready ones also how many are not due yet (scheduled), how many were tried before (retrying), and since
    when the oldest is due. And how many workers are registered. Reads every row of the jobs' table.
    """
    queues, workers = _queues(dibs), _workers(dibs)
    if as_json:
        print_json({"database": str(dibs.url), "queues": queues, "workers": workers})
        return
    if queues:
        header = ["QUEUE", *[state.upper() for state in State], ""]
        print_table(header, [[row["queue"], *[row[state] for state in State], _note(row)] for row in queues])
    else:
        click.echo(f"no jobs in {dibs.url}", err=True)
    if workers is not None:
        number = sum(workers.values())
        states = ", ".join(f"{count} {state}" for state, count in sorted(workers.items()))
        said = (
            f"{number} worker{'s' * (number != 1)}: {states}; see dibs workers" if number else "no worker is registered"
        )
        click.echo(said, err=not queues)


def _workers(dibs: Dibs) -> dict[str, int] | None:
    """Return how many workers are in which state; None where there is no register, or it may not be read."""
    try:
        return dict(Counter(worker.state for worker in dibs.workers()))
    except DatabaseUnavailable:
        raise
    except DatabaseError:
        return None


def _queues(dibs: Dibs) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    def queue_named(name: str) -> dict[str, Any]:
        numbers = dict.fromkeys([*map(str, State), "scheduled", "retrying"], 0)
        empty = {"queue": name, **numbers, "oldest_due": None, "paused_at": None, "paused_by": None}
        return found.setdefault(name, empty)

    for name, state, later, tried, number, earliest in dibs.store.run(dibs.dialect.overview):
        queue = queue_named(name)
        queue[state] += number
        queue["scheduled"] += number if later else 0
        queue["retrying"] += number if tried else 0
        if state is State.READY and not later:
            queue["oldest_due"] = min(earliest, queue["oldest_due"] or earliest)
    for name, at, by in dibs.store.run(dibs.dialect.paused):
        queue_named(name).update(paused_at=at, paused_by=by)
    return [found[name] for name in sorted(found)]


def _note(queue: dict[str, Any]) -> str:
    notes = [f"{queue[name]} {name}" for name in ("scheduled", "retrying") if queue[name]]
    if isinstance(queue["oldest_due"], datetime):
        notes.append(f"oldest due {cell(queue['oldest_due'])}")
    if queue["paused_at"] is not None:
        notes.append(f"paused since {cell(queue['paused_at'])} by {queue['paused_by']}")
    return ", ".join(notes)
