"""Options that several commands take alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from dibs.app import Dibs

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


def remember_url(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Keep the URL of the database as the context's object, for this command and those below it."""
    if value is not None:
        context.obj = value


def url_option(function: F) -> F:
    """Let a command take --url, too; it finds the URL, or None, with `click.pass_obj`."""
    option = click.option("--url", metavar="URL", expose_value=False, callback=remember_url, help="The database's URL.")
    return option(function)


def pass_dibs(function: Callable[Concatenate[Dibs, P], R]) -> Callable[P, R]:
    """Let a command take --url, and call it with the `Dibs` of that database or of the environment's.

    A framework that knows its app runs the commands with it in the place of the URL.
    """

    @url_option
    @click.pass_obj
    def command(url: str | Dibs | None, /, *args: P.args, **kwargs: P.kwargs) -> R:
        from dibs.app import Dibs

        dibs = url if isinstance(url, Dibs) else Dibs(url)
        try:
            return function(dibs, *args, **kwargs)
        finally:
            dibs.close()

    return update_wrapper(command, function)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def job_id(value: str) -> int:
    """Return the id of a job as a number that every database can hold."""
    if not (value.isascii() and value.isdigit() and int(value[:20]) < 2**63):
        raise click.BadParameter(f"{value!r} is not the id of a job, which is a number")
    return int(value)


job_ids_argument = click.argument("job_ids", metavar="ID…", type=job_id, nargs=-1)
