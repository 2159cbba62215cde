"""`dibs failed`: what failed, grouped by task and exception, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click
import msgspec

from dibs import wording
from dibs.app import Dibs
from dibs.cli import bulk
from dibs.cli.choosing import filter_options
from dibs.cli.options import json_option, pass_dibs
from dibs.cli.output import cell, print_json, printable
from dibs.errors import JobNotFound
from dibs.filters import Filters
from dibs.selections import Selection
from dibs.tracebacks import kind_of

#: Of what an exception said, so many characters are shown.
SHOWN = 100


class Group(msgspec.Struct, kw_only=True):
    """Failed jobs of one task that one kind of error ended. `error` is a text that stands in all of theirs."""

    task: str
    error: str
    count: int = 0
    first: datetime
    last: datetime
    sample: int
    message: str = ""
    requeue: str = ""


@click.command()
@filter_options("task", "queue", "since", "error")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=20, show_default=True, help="How many groups.")
@json_option
@click.pass_context
@pass_dibs
def failed(dibs: Dibs, context: click.Context, /, which: Filters, limit: int, as_json: bool) -> None:
    """Show what failed: how often, since when, and what to do.

    Grouped by task and exception, the largest groups first.
    """
    which["status"] = "failed"
    selection = dibs.select(**which)
    number = selection.count()
    with bulk.heeding() as interrupted:
        groups = _groups(bulk.each(_parts(selection), number, "reading", interrupted))
    if interrupted.once:
        raise KeyboardInterrupt
    largest = sorted(groups, key=lambda group: (-group.count, group.task, group.error))
    program = context.find_root().info_name or "dibs"
    since = _since(dibs, selection)
    for group in largest[:limit]:
        group.message = _message(dibs, group)
        group.requeue = _requeue(program, group, which.get("queue"), since)
    if as_json:
        print_json(largest[:limit])
        return
    for group in largest[:limit]:
        _print(group, program)
    if len(largest) > limit:
        click.echo(f"and {len(largest) - limit} smaller groups: --limit {len(largest)} shows them", err=True)
    if not largest:
        click.echo("no such jobs" if len(which) > 1 else "no failed jobs", err=True)


def _parts(selection: Selection) -> Iterator[tuple[int, list[Any]]]:
    for rows in selection.failures():
        yield len(rows), rows


def _groups(parts: Iterator[tuple[int, list[Any]]]) -> list[Group]:
    groups: dict[tuple[str, str], Group] = {}
    kinds: dict[str, str] = {}  # many fail with the very same text
    for _, rows in parts:
        for job_id, task, at, text in rows:
            text = text or ""
            if text not in kinds:
                kinds = kinds if len(kinds) < 1000 else {}
                kinds[text] = kind_of(text)[0]
            key = (task, kinds[text])
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(task=task, error=kinds[text], first=at, last=at, sample=job_id)
            group.count += 1
            group.first = min(group.first, at)
            if at >= group.last:
                group.last, group.sample = at, job_id
    return list(groups.values())


def _message(dibs: Dibs, group: Group) -> str:
    """Return what the exception of the sample said; a job looked up has its secrets masked."""
    try:
        return kind_of(dibs.job(group.sample).error or "")[1]
    except JobNotFound:  # pruned, or requeued with a retention of 0, since it was counted
        return ""


def _since(dibs: Dibs, selection: Selection) -> datetime | None:
    """Return the moment that --since meant: a duration would mean another one by the time that the command is pasted."""
    if selection.chosen.ago is None:
        return selection.chosen.since
    return dibs.dialect.moment(selection.edge.since)


def _requeue(program: str, group: Group, queue: str | None, since: datetime | None) -> str:
    """Return the command that sends the group round again."""
    words = [*program.split(), "requeue", "--task", group.task]
    if queue:
        words += ["--queue", queue]
    if since:
        words += ["--since", f"{since:%Y-%m-%dT%H:%M:%SZ}"]
    return shlex.join([*words, *(["--error", group.error] if group.error else [])])


def _print(group: Group, program: str) -> None:
    said = printable(f"{group.error}: {group.message}" if group.message else group.error or "no error text")
    click.echo(f"{wording.jobs(group.count)} of {printable(group.task)}: {_short(said)}")
    click.echo(f"    first {cell(group.first)}, last {cell(group.last)}, such as {program} show {group.sample}")
    click.echo(f"    {printable(group.requeue)}\n")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
