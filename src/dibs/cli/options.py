"""Options that several commands take alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from dibs.cli.secrets import has_password

if TYPE_CHECKING:
    from dibs.app import Dibs

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

#: Which app, where no command line says so.
VARIABLE = "DIBS_APP"

#: In the context's `meta`: the app that the command line, or a variable of one command's own, names.
PLACE = "dibs.place"


def remember_url(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Keep the URL of the database as the context's object, for this command and those below it."""
    if value is not None and not (context.obj is not None and _from_environment(context, parameter)):
        context.obj = value


def remember_app(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Keep the name of the app, for this command and those below it."""
    if value and not (PLACE in context.meta and _from_environment(context, parameter)):
        context.meta[PLACE] = value
        context.meta[f"{PLACE}.typed"] = not _from_environment(context, parameter)


def _from_environment(context: click.Context, parameter: click.Parameter) -> bool:
    return context.get_parameter_source(parameter.name or "") is ParameterSource.ENVIRONMENT


def url_option(function: F) -> F:
    """Let a command take --url, too; it finds the URL, or None, with `click.pass_obj`."""
    option = click.option("--url", metavar="URL", expose_value=False, callback=remember_url, help="The database's URL.")
    return option(function)


def app_option_of(envvar: str | None) -> Callable[[F], F]:
    """Let a command take -A, too, or a variable of its own; it finds the app's name with `place_of`."""
    return click.option(
        "-A",
        "--app",
        "place",
        metavar="APP",
        expose_value=False,
        envvar=envvar,
        callback=remember_app,
        help=f"The app, as module:attribute, instead of {VARIABLE}.",
    )


app_option = app_option_of(None)


def place_of(context: click.Context, given: str | None = None) -> str:
    """Return the name of the app: the one `given` in its place or with -A, else DIBS_APP's. It is an error without.

    A framework that knows its app needs no name.
    """
    option: str | None = context.meta.get(PLACE)
    if given and option and given != option and context.meta.get(f"{PLACE}.typed"):
        raise click.UsageError(f"{given} and -A {option} are two apps: name one of them")
    place = given or option or os.environ.get(VARIABLE) or ""
    if not place and (context.obj is None or isinstance(context.obj, str)):
        raise click.UsageError(f"no app: write it as module:attribute, such as myapp.jobs:app, or set {VARIABLE}")
    return place


def dibs_of(context: click.Context) -> Dibs:
    """Return the `Dibs` that a command is about: a framework's, that of the app that is named, or one for the URL.

    What is typed comes first: with --url alone the app of the environment is not asked.
    """
    from dibs.app import Dibs

    if isinstance(context.obj, Dibs):
        return context.obj
    if PLACE in context.meta or (context.obj is None and os.environ.get(VARIABLE)):
        from dibs.cli.apps import load

        return load(place_of(context), context.obj)
    return Dibs(context.obj)


def pass_dibs(function: Callable[Concatenate[Dibs, P], R]) -> Callable[P, R]:
    """Let a command take --url and -A, and call it with the `Dibs` that they mean; see `dibs_of`."""

    @url_option
    @app_option
    @click.pass_context
    def command(context: click.Context, /, *args: P.args, **kwargs: P.kwargs) -> R:
        dibs = dibs_of(context)
        try:
            return function(dibs, *args, **kwargs)
        finally:
            dibs.close()

    return update_wrapper(command, function)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def queue_name(value: str) -> str:
    """Return the name of a queue, which is printed: a URL in its place was meant for another option."""
    if has_password(value):
        raise click.BadParameter("this is the URL of a database, which goes after --url, and not the name of a queue")
    return value


queue_argument = click.argument("queue", type=queue_name)


def job_id(value: str) -> int:
    """Return the id of a job as a number that every database can hold."""
    if not (value.isascii() and value.isdigit() and int(value[:20]) < 2**63):
        raise click.BadParameter(f"{value!r} is not the id of a job, which is a number")
    return int(value)


job_ids_argument = click.argument("job_ids", metavar="ID…", type=job_id, nargs=-1)
