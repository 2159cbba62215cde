"""`manage.py dibs …`: the `dibs` command, with the project's app and database."""

from __future__ import annotations

import os
import signal
import sys
from argparse import REMAINDER
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError

#: Options of manage.py's own, which it has heeded before it came here: with how many values.
_DJANGOS = {"--settings": 1, "--pythonpath": 1, "--no-color": 0, "--force-color": 0, "--traceback": 0}

#: Where commands that want to be told get the app.
_APP = "dibs.contrib.django:app"


class Command(BaseCommand):
    help = "Runs, looks at and steers the jobs of this project: manage.py dibs worker, status, jobs, …"

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs=REMAINDER, help="as for the dibs command: see manage.py dibs --help")

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command of the command line. What Django knows of options is not asked: click knows them."""
        arguments = _without_djangos(argv[2:])
        if arguments[:1] == ["worker"]:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _leave)
        sys.exit(_run(arguments, name=f"{os.path.basename(argv[0])} dibs", program=[sys.executable, argv[0]]))

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it from code: `call_command("dibs", "worker", "--burst")`."""
        code = _run(options["arguments"], name="dibs", program=[sys.executable, "-m", "django"])
        if code:
            raise CommandError(f"dibs {' '.join(options['arguments'])} failed", returncode=code)


def _run(arguments: Sequence[str], *, name: str, program: list[str]) -> int:
    from dibs.cli.run import run
    from dibs.cli.worker import PROGRAM
    from dibs.contrib.django import app

    return run(_with_app(list(arguments)), name=name, app=app, meta={PROGRAM: program})


def _with_app(arguments: list[str]) -> list[str]:
    """Name the app where a command wants to be told."""
    from dibs.cli.commands import commands

    command = commands.get_command(click.Context(commands), arguments[0]) if arguments else None
    for parameter in command.params if command is not None else []:
        if parameter.name == "app" and isinstance(parameter, click.Argument):
            return [arguments[0], _APP, *arguments[1:]]
    return arguments


def _without_djangos(arguments: Sequence[str]) -> list[str]:
    kept = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if name not in _DJANGOS:
            kept.append(argument)
        elif _DJANGOS[name] and not equals:
            next(rest, None)
    return kept


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: until the worker runs, no job is claimed, and there is nothing to take apart."""
    os._exit(0)
