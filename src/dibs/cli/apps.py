"""Finds the app that `module:attribute` names. What goes wrong in the user's module is shown as it went wrong."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any

import click

from dibs.app import Dibs
from dibs.cli.problems import WrongUsage
from dibs.cli.secrets import hide, scrub
from dibs.connections import VARIABLES
from dibs.dialects import parse
from dibs.errors import DibsError
from dibs.tasks import Task

_DIBS = os.path.dirname(os.path.dirname(__file__)) + os.sep


def load(place: str, url: str | Dibs | None) -> Dibs:
    """Import the module of `place` and return its app.

    `place` is `module:attribute`, `module:function` for a function that makes the app, or `module` alone where it
    has only one. With a `url`, a `Dibs()` without one takes that; an app that was given another one is refused,
    since everything else in its code goes on using it. A framework that knows its app gives it in place of the URL.
    """
    if isinstance(url, Dibs):
        url.load()
        return url
    hide(url)
    wanted = None if url is None else parse(url)
    if url is not None:
        os.environ[VARIABLES[0]] = url
    module_name, _, path = place.partition(":")
    app = _app_in(_module(module_name), module_name, path)
    if path and app.place is None:
        app.place = place
    if wanted is not None and app.url != wanted:
        raise WrongUsage(
            f"{place} is an app on {app.url}, and --url says {wanted}: leave out --url, or write Dibs() without a URL "
            "there, which takes it from --url or the environment"
        )
    return app


def load_tasks(app: Dibs, place: str) -> None:
    """Import the modules that an app names with `Dibs(imports=…)`, as its worker does when it starts."""
    try:
        app.load()
    except Exception as error:
        raise _broken(f"the modules that {place} imports cannot be imported", error) from error


def _module(name: str) -> ModuleType:
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        meant = name.removesuffix(".py").strip("./").replace("/", ".")
        advice = f", perhaps {meant}:app" if name.endswith(".py") else ""
        raise WrongUsage(f"an app is named like myapp.jobs:app{advice}, not {name!r}")
    here = os.getcwd()
    if sys.path[:1] not in ([here], [""]):
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise WrongUsage(f"there is no module {missing!r} in {here} or elsewhere on Python's path") from None
        raise _broken(f"{name} cannot be imported", error) from error
    except SystemExit as error:
        raise _broken(f"{name} ends the program when it is imported", error) from error


def _app_in(module: ModuleType, module_name: str, path: str) -> Dibs:
    if not path:
        names = _apps_of(module)
        if len({id(getattr(module, name)) for name in names}) != 1:
            raise WrongUsage(f"{module_name} has {_listed(names)}: write {module_name}:app with the name of yours")
        path = names[0]
    found: Any = module
    for name in path.removesuffix("()").split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise WrongUsage(f"there is no {path} in {module_name}, which has {_listed(_apps_of(module))}") from None
    if isinstance(found, Dibs):
        return found
    if inspect.isroutine(found) and not isinstance(found, Task):
        try:
            found = found()
        except Exception as error:
            raise _broken(f"{module_name}:{path} could not make the app", error) from error
        if isinstance(found, Dibs):
            return found
        path += "()"
    kind = "a task" if isinstance(found, Task) else f"of type {type(found).__name__}"
    raise WrongUsage(f"{module_name}:{path} is {kind}, not a Dibs: {module_name} has {_listed(_apps_of(module))}")


def _apps_of(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, Dibs)]


def _listed(names: list[str]) -> str:
    return f"the apps {', '.join(names)}" if len(names) > 1 else f"the app {names[0]}" if names else "no app"


def _broken(what: str, error: BaseException) -> WrongUsage:
    """Show the traceback from the user's code on; return the error that ends the command.

    An error of dibs' own needs none: it says what is wrong, and only lacks where.
    """
    if isinstance(error, DibsError):
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not frame.filename.startswith((_DIBS, "<frozen "))]
        where = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
        return WrongUsage(f"{what}: {error}{where}")
    trace = error.__traceback__
    while trace is not None and _leads_to_users_code(trace):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    click.echo(scrub(text), err=True, nl=False)
    return WrongUsage(f"{what}: {traceback.format_exception_only(type(error), error)[-1].strip()}")


def _leads_to_users_code(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")
