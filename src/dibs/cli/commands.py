"""Which commands there are. A command's module is imported when the command is run, not before: `dibs --help`
and a worker's start should be quick.
"""

from __future__ import annotations

import difflib
from importlib import import_module

import click

import dibs
from dibs.cli.options import VARIABLE, remember_app, remember_url

#: Name → the module with the command, and what it does in a line (the same as its docstring begins).
COMMANDS = {
    "worker": ("dibs.cli.worker", "Run the jobs of an app until stopped."),
    "health": ("dibs.cli.health", "Ask the workers of this machine whether they are live."),
    "migrate": ("dibs.cli.migrate", "Make or update the tables of dibs."),
    "check": ("dibs.cli.check", "Tell whether an app's code fits the jobs that wait."),
    "status": ("dibs.cli.status", "Show how many jobs each queue has, and what is paused."),
    "workers": (
        "dibs.cli.workers",
        "Show who works on the queue, and how they fare.",
    ),
    "why": ("dibs.cli.why", "Tell why nothing of a queue is being claimed."),
    "locks": ("dibs.cli.locks", "Show who holds rows of the queue, or blocks it."),
    "metrics": ("dibs.cli.metrics", "Show what the database knows of the queue, as metrics."),
    "jobs": ("dibs.cli.jobs", "List jobs, newest first."),
    "failed": ("dibs.cli.failed", "Show what failed: how often, since when, and what to do."),
    "show": ("dibs.cli.show", "Show all about one job."),
    "run": ("dibs.cli.run_job", "Run one job now, here."),
    "enqueue": ("dibs.cli.enqueue", "Enqueue a job of an app's task."),
    "cancel": ("dibs.cli.cancel", "Cancel jobs that have not ended."),
    "requeue": ("dibs.cli.requeue", "Put failed or cancelled jobs back in their queues."),
    "pause": ("dibs.cli.pauses", "Let no job of a queue start any more."),
    "resume": ("dibs.cli.pauses", "Let a paused queue go on."),
    "prune": ("dibs.cli.prune", "Delete finished jobs whose retention is over."),
    "doctor": ("dibs.cli.doctor", "Check the tables, the server and how the queue is served."),
    "verify": ("dibs.verify.command", "Try dibs' promises on your database, before you go live."),
    "bench": ("dibs.bench.command", "Measure dibs on your database, and name the limit it runs into."),
    "demo": ("dibs.demo.command", "See dibs at work on real files while a worker is killed."),
}

EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the database, "
    "4 its schema, 5 warned (doctor), 130 interrupted."
)


class Commands(click.Group):
    """The commands, by name; a wrong name gets to hear the near ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS)
            advice = f": did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"there is no command {name!r}{advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line.rstrip(".")) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Commands, epilog=EPILOG, invoke_without_command=True)
@click.option(
    "--url",
    metavar="URL",
    expose_value=False,
    callback=remember_url,
    help="The database, instead of DIBS_DATABASE_URL or DATABASE_URL; also after the command.",
)
@click.option(
    "-A",
    "--app",
    metavar="APP",
    expose_value=False,
    callback=remember_app,
    help=f"The app, as module:attribute, instead of {VARIABLE}; also after the command.",
)
@click.version_option(dibs.__version__, prog_name="dibs", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Run, look at and steer the jobs of a dibs queue."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(2)
