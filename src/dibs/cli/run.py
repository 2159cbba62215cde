"""Runs a command and turns what went wrong into one line and an exit code. Errors that nobody expects keep their
traceback: they are bugs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from dibs.cli.commands import commands
from dibs.cli.secrets import hide_those_in, scrub

FAILED = 1
USAGE = 2
DATABASE = 3
SCHEMA = 4
INTERRUPTED = 130  # what shells say of a process that SIGINT ended


def run(arguments: Sequence[str], *, name: str = "dibs", app: object = None, meta: dict[str, Any] | None = None) -> int:
    """Run the command that the arguments name; return the exit code.

    A framework runs it under a `name` of its own, with the `app` that it knows.
    """
    if "_DIBS_COMPLETE" in os.environ:
        commands.main(prog_name="dibs")  # answers the shell, and exits
    hide_those_in(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # what a terminal has no letter for is no reason to fail
    try:
        with commands.make_context(name, list(arguments), obj=app) as context:
            context.meta.update(meta or {})
            commands.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read has had enough, such as `head`. Nothing more is written there, also not by the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        say(_sentence(error.format_message()) + where)
        return error.exit_code
    except click.ClickException as error:
        say(_sentence(error.format_message()))
        return error.exit_code
    except Exception as error:
        code = code_of(error)
        if code is None:
            raise
        say(_sentence(str(error)))
        return code
    return 0


def code_of(error: Exception) -> int | None:
    """Return the exit code of an expected error, None for one that is not."""
    from dibs import errors  # most commands that end well never need it

    if isinstance(error, errors.SchemaError):
        return SCHEMA
    if isinstance(error, errors.DatabaseError):
        return DATABASE
    if isinstance(error, (errors.ConfigurationError, errors.InvalidArgument)):
        return USAGE
    return FAILED if isinstance(error, errors.DibsError) else None


def say(message: str) -> None:
    """Tell the person at the terminal something that is not a result."""
    click.echo(f"dibs: {scrub(message)}", err=True)


def _sentence(message: str) -> str:
    """Return a message as one line that begins small and has no full stop, as click's own do not."""
    line = "; ".join(part.strip() for part in message.splitlines() if part.strip()).rstrip(".")
    return line[:1].lower() + line[1:] if line[1:2].islower() or line[1:2] == " " else line
