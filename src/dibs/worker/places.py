"""Where an app and its tasks are found again by another process. No I/O but imports."""

from __future__ import annotations

import importlib
import logging
import os
import runpy
import sys
import types
from typing import Any

from dibs.app import Dibs
from dibs.errors import ConfigurationError
from dibs.worker.messages import Hello

#: The name of the program, as which the worker was started, where a process imports it. Not `__main__`, so that
#: what stands under `if __name__ == "__main__":` is not run. (The same as in `multiprocessing`.)
PROGRAM = "__mp_main__"

_inside = False


def inside_a_process() -> bool:
    """Is this process one that runs jobs for a worker?"""
    return _inside


def go_inside() -> None:
    global _inside
    _inside = True


def hello_for(app: Dibs, worker: str) -> Hello:
    """Return what a process must know to run this app's tasks. Raises ConfigurationError when it can't be told."""
    functions = [task.function for task in app.tasks.values() if task.runs_in == "process"]
    modules = sorted({function.__module__ for function in functions})
    place = app.place or _place_of(app, modules)
    program = program_module = None
    if "__main__" in (place.partition(":")[0], *modules):
        program, program_module = _program()
    return Hello(
        path=[os.path.abspath(folder) for folder in sys.path],
        argv=sys.argv,
        first=_first(),
        program=program,
        program_module=program_module,
        place=place,
        modules=[module for module in modules if module != "__main__"],
        level=logging.getLogger().getEffectiveLevel(),
        worker=worker,
    )


def _place_of(app: Dibs, modules: list[str]) -> str:
    """Find the module's variable that holds this app; that of an imported module rather than the program's."""
    names = [*modules, *sys.modules]
    names.sort(key=lambda name: name == "__main__")
    for name in names:
        module = sys.modules.get(name)
        if not isinstance(module, types.ModuleType):
            continue
        for variable, value in list(vars(module).items()):
            if value is app:
                return f"{name}:{variable}"
    raise ConfigurationError(
        'tasks with runs_in="process" are run by other processes, which import the app, and it is in no module\'s '
        'variable: keep it in one, or say where it is made, as app.place = "myapp.jobs:make_app"'
    )


def _program() -> tuple[str | None, str | None]:
    """Return the path of the program's file, or the name of its module."""
    program = sys.modules["__main__"]
    spec = getattr(program, "__spec__", None)
    if spec is not None and spec.name:
        return None, spec.name
    file = getattr(program, "__file__", None)
    if file is None or not os.path.exists(file):
        raise ConfigurationError(
            'tasks with runs_in="process" are run by other processes, which import them, and this program is no file: '
            "move the tasks to a module"
        )
    return os.path.abspath(file), None


def _first() -> list[list[str]]:
    """Return what other libraries that are set up in this process need before their modules can be imported."""
    django = sys.modules.get("django.apps")
    if "DJANGO_SETTINGS_MODULE" not in os.environ or django is None or not django.apps.ready:
        return []  # settings that were made in this process can't be found again
    from django.db import connections

    # Where its connections lead *now*: in a test run that is another database than the settings name.
    names = [[alias, str(settings["NAME"])] for alias, settings in connections.settings.items()]
    return [["django:setup"], *(["dibs.contrib.django.processes:lead_to", *name] for name in names)]


# -- in the other process ------------------------------------------------------------------------


def app_at(hello: Hello) -> Dibs:
    """Import what a worker told of; return the app."""
    sys.path[:], sys.argv[:] = hello.path, hello.argv
    for call, *arguments in hello.first:
        module, _, function = call.partition(":")
        getattr(importlib.import_module(module), function)(*arguments)
    if hello.program is not None or hello.program_module is not None:
        _import_program(hello.program, hello.program_module)
    name, _, path = hello.place.partition(":")
    found: Any = sys.modules[PROGRAM] if name == "__main__" else importlib.import_module(name)
    for attribute in path.removesuffix("()").split("."):
        found = getattr(found, attribute)
    if not isinstance(found, Dibs):
        found = found()
    if not isinstance(found, Dibs):
        raise ConfigurationError(f"{hello.place} is no Dibs, and makes none")
    app: Dibs = found
    for module in hello.modules:
        importlib.import_module(module)
    app.load()
    return app


def _import_program(path: str | None, module_name: str | None) -> None:
    module = types.ModuleType(PROGRAM)
    if path is not None:
        content = runpy.run_path(path, run_name=PROGRAM)
    else:
        assert module_name is not None
        content = runpy.run_module(module_name, run_name=PROGRAM, alter_sys=True)
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules[PROGRAM] = module
