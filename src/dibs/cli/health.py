"""`dibs health`: ask the workers of this machine whether they are live, for probes that have no port to ask."""

from __future__ import annotations

import click

from dibs.cli.options import json_option
from dibs.cli.output import print_json
from dibs.cli.problems import WrongUsage
from dibs.cli.units import duration
from dibs.worker import runtime


@click.command()
@click.option("--ready", is_flag=True, help="Ask whether they are ready, too: connected and claiming.")
@click.option("--pid", metavar="PID", type=click.IntRange(1), help="Only the worker in this process.")
@click.option(
    "--timeout", metavar="TIME", type=duration, default="5s", show_default=True, help="How long an answer may take."
)
@json_option
def health(ready: bool, pid: int | None, timeout: float, as_json: bool) -> None:
    """Ask the workers of this machine whether they are live.

    Those that `dibs worker` runs as this user here, in this container. It leaves with 0 if there is one and all are
    well, with 1 if not. The database is not asked.
    """
    if not 0 < timeout <= 600:
        raise WrongUsage("--timeout is more than 0 and at most 600 s")
    question = "readyz" if ready else "livez"
    found = runtime.workers(None if pid is None else [pid])
    asked = [(each, runtime.ask(each, question, within=timeout)) for each in found]
    answers = [(each, answer) for each, answer in asked if answer is not None]
    if as_json:
        print_json(
            [
                {"pid": each.process, "ok": answer.ok, "reason": answer.reason, **answer.facts}
                for each, answer in answers
            ]
        )
    else:
        for each, answer in answers:
            if answer.ok:
                click.echo(f"process {each.process} is {'ready' if ready else 'live'}")
    if not answers:
        which = "no worker" if pid is None else f"no worker in process {pid}"
        raise click.ClickException(f"there is {which} of this user's in {runtime.folder()}")
    if bad := [f"process {each.process}: {answer.reason}" for each, answer in answers if not answer.ok]:
        raise click.ClickException("; ".join(bad))
