"""`dibs why`: is the queue empty, or is something in the way?"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec

from dibs.app import Dibs
from dibs.cli.options import json_option, pass_dibs, queue_argument
from dibs.cli.output import cell, print_json, printable
from dibs.holders import LockHolder, described
from dibs.why import Why


@click.command()
@queue_argument
@json_option
@pass_dibs
def why(dibs: Dibs, queue: str, as_json: bool) -> None:
    """Tell why nothing of a queue is being claimed.

    The reason in words, what else holds, the figures behind it, and what to do next. As far as can be known from here:
    some thousands of rows are looked at, and those that are due are locked for a moment, as a claim does.
    """
    found = dibs.why(queue)
    if as_json:
        print_json(found)
        return
    click.echo(f"{found.reason}: {printable(found.answer)}")
    if found.also:
        click.echo(f"also: {', '.join(found.also)}")
    for name, value in _figures(found).items():
        click.echo(f"    {name.replace('_', ' ')}: {value}")
    click.echo(f"    looked up in: {printable(found.database)}")
    for step in found.next:
        click.echo(f"next: {printable(step)}")


def _figures(found: Why) -> dict[str, str]:
    """Return the figures that say something, each in a line."""
    figures: dict[str, Any] = {name: getattr(found.detail, name) for name in found.detail.__struct_fields__}
    shown: dict[str, str] = {}
    for name, value in figures.items():
        if value in (None, False, [], 0) and name not in ("due", "running", "serving", "workers"):
            continue
        if value is None:
            shown[name] = "not known"
        elif isinstance(value, datetime):
            shown[name] = cell(value)
        elif isinstance(value, list):
            shown[name] = cell("; ".join(_item(each) for each in value) or "none")
        else:
            shown[name] = "yes" if value is True else cell(value)
    return shown


def _item(each: Any) -> str:
    if isinstance(each, LockHolder):
        return described(each)
    if not isinstance(each, msgspec.Struct):
        return str(each)
    parts = ((name, getattr(each, name)) for name in each.__struct_fields__)
    return ", ".join(f"{name} {cell(value)}" for name, value in parts if value is not None)
