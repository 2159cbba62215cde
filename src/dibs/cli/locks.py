"""`dibs locks`: who holds rows of the queue, or blocks its statements, and what would end it."""

from __future__ import annotations

import sys
from functools import partial

import click

from dibs.app import Dibs
from dibs.cli.options import json_option, pass_dibs, queue_name
from dibs.cli.output import cell, print_json
from dibs.cli.problems import WrongUsage
from dibs.cli.watching import show, watch_option
from dibs.holders import LockHolder, LockReport, described


@click.command()
@click.argument("queue", type=queue_name, required=False)
@json_option
@watch_option
@click.option("--kill", metavar="PID", type=click.IntRange(1), help="End this session, one of those that are shown.")
@click.option("--yes", is_flag=True, help="With --kill: do not ask.")
@pass_dibs
def locks(dibs: Dibs, queue: str | None, as_json: bool, watch: bool, kill: int | None, yes: bool) -> None:
    """Show who holds rows of the queue, or blocks it.

    With what would end it, which is printed, and run for no other than the one that you name with --kill. A worker passes rows
    that are held and waits for nobody: this is where they are, when jobs are due and nothing is claimed.
    """
    if kill is None:
        if yes:
            raise WrongUsage("--yes goes with --kill")
        show(partial(_show, dibs, queue, as_json=as_json), watch=watch)
        return
    if watch:
        raise WrongUsage("--kill does not go with --watch")
    _kill(dibs, queue, kill, yes=yes, as_json=as_json)


def _show(dibs: Dibs, queue: str | None, *, as_json: bool) -> None:
    report = dibs.locks(queue)
    if as_json:
        print_json(report)
        return
    _print(report, err=False)
    if not report.holders:
        of = f" of {queue}" if queue else ""
        seen = "nobody holds" if report.complete else "as far as can be seen, nobody holds"
        click.echo(f"{seen} rows{of} or blocks a statement, in {dibs.url}", err=True)


def _kill(dibs: Dibs, queue: str | None, session: int, *, yes: bool, as_json: bool) -> None:
    report = dibs.locks(queue)
    holder = next((each for each in report.holders if each.session == session), None)
    if holder is None:
        raise WrongUsage(f"{session} is no session that holds rows or blocks a statement just now: see dibs locks")
    if not yes:
        if not sys.stdin.isatty():
            raise WrongUsage(f"end {session}? Say --yes if so: stdin is no terminal, so nobody can be asked")
        _print_holder(holder, err=True)
        if not click.confirm(f"end {session}? What it has not committed is undone", err=True):
            raise click.ClickException("nothing was changed")
    ended = dibs.end_holder(session)
    if as_json:
        print_json({"session": session, "ended": ended})
    else:
        click.echo(f"ended {session}" if ended else f"{session} had ended already")


def _print(report: LockReport, *, err: bool) -> None:
    for holder in report.holders:
        _print_holder(holder, err=err)
    for note in report.notes:
        click.echo(f"note: {note}", err=True)


def _print_holder(holder: LockHolder, *, err: bool) -> None:
    lines = [described(holder)]
    if holder.jobs:
        more = "" if holder.rows is None or holder.rows <= len(holder.jobs) else ", …"
        lines.append(f"jobs      {', '.join(map(str, holder.jobs))}{more}{_by_queue(holder)}")
    if holder.tables:
        lines.append(f"tables    {', '.join(holder.tables)}")
    if holder.waits_for:
        lines.append(f"waits for {_sessions(holder.waits_for)}")
    if holder.blocks:
        lines.append(f"blocks    {_sessions(holder.blocks)}")
    if holder.wait:
        lines.append(f"wait      {holder.wait}")
    if holder.query:
        lines.append(f"{'command ' if holder.kind == 'process' else 'query   '}  {holder.query}")
    about = [
        f"{what} {value}"
        for what, value in (("user", holder.user), ("from", holder.client), ("as", holder.application))
        if value
    ]
    if about:
        lines.append(f"who       {', '.join(about)}")
    if holder.ends_with:
        lines.append(f"end it    {holder.ends_with}")
    for number, line in enumerate(lines):
        click.echo(("    " if number else "") + cell(line), err=err)


def _by_queue(holder: LockHolder) -> str:
    return " of " + ", ".join(f"{queue} ({number:,})" for queue, number in sorted(holder.queues.items()))


def _sessions(sessions: list[int]) -> str:
    shown = ", ".join(str(each) if each else "a prepared transaction" for each in sessions[:10])
    return shown + (f" and {len(sessions) - 10:,} more" if len(sessions) > 10 else "")
