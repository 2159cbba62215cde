"""`dibs enqueue`: one job, with its arguments as JSON, checked as the task's own code would check them."""

from __future__ import annotations

import difflib
import json
import sys
from typing import Any

import click

from dibs.app import Dibs
from dibs.cli.apps import load
from dibs.cli.options import app_option, json_option, place_of, queue_name, url_option
from dibs.cli.output import print_json
from dibs.cli.problems import WrongUsage
from dibs.cli.units import duration
from dibs.tasks import Task

#: So many names are listed where none is near.
MOST_NAMES = 10


@click.command()
@click.argument("app", metavar="[APP]", required=False)
@click.argument("task", metavar="TASK", required=False)
@app_option
@click.option("--args", "arguments", metavar="JSON", default="{}", help="An object by name or a list; - reads stdin.")
@click.option("--key", help="The idempotency key: a second enqueue with it is a duplicate.")
@click.option("--delay", metavar="TIME", type=duration, help="Not before so long from now, such as 90s or 2h.")
@click.option("-q", "--queue", metavar="QUEUE", type=queue_name, help="Instead of the task's own.")
@click.option("--priority", metavar="N", type=int, help="Higher goes first; instead of the task's own.")
@json_option
@url_option
@click.pass_context
def enqueue(
    context: click.Context, /, app: str | None, task: str | None, arguments: str, as_json: bool, **options: Any
) -> None:
    """Enqueue a job of an app's task.

    APP is module:attribute, such as myapp.jobs:app, and is left out where -A or DIBS_APP says which; TASK is the task's
    name, such as myapp.jobs.export_order.
    """
    if task is None:  # of one name it is the last that counts
        app, task = None, app
    if task is None:
        raise click.UsageError("missing argument 'TASK'")
    args, kwargs = _arguments(arguments)
    url: str | Dibs | None = context.obj
    dibs = load(place_of(context, app), url)
    job = _task(dibs, task).using(**options).enqueue(*args, **kwargs)
    if as_json:
        print_json({"id": job.id, "created": job.created})
    else:
        click.echo(f"enqueued {job.id}" if job.created else f"duplicate of {job.id}")


def _task(dibs: Dibs, name: str) -> Task[Any, Any]:
    if name in dibs.tasks:
        return dibs.tasks[name]
    near = [task for task in dibs.tasks if task.endswith(f".{name}")] or difflib.get_close_matches(
        name, dibs.tasks, cutoff=0.75
    )
    if near:
        advice = f"did you mean {' or '.join(near)}?"
    else:
        names = sorted(dibs.tasks)
        advice = (
            f"it has {', '.join(names[:MOST_NAMES])}{', …' * (len(names) > MOST_NAMES)}" if names else "it has none"
        )
    raise WrongUsage(f"the app has no task {name!r}: {advice}")


def _arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments by position and by name."""
    try:
        value = json.loads(sys.stdin.read() if text == "-" else text)
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"--args is not JSON ({error}): write it like '{{\"order_id\": 7}}'") from None
    if isinstance(value, dict):
        return [], value
    if isinstance(value, list):
        return value, {}
    raise WrongUsage("--args takes a JSON object with the arguments by name, or a list of them")
