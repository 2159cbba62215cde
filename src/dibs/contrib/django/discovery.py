"""Which tasks there are: those in the `tasks` module of every installed app, and in DIBS["IMPORTS"].

A job names its task, and nothing is ever imported because a row says so: a name means only what these modules
registered, with `@app.task`, or declared with the `@task` of Django's own framework.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

if TYPE_CHECKING:
    from dibs.contrib.django.project import ProjectDibs

#: Where the framework's Task may be: Django 6 has it, for earlier ones there is a package.
_STANDARD = ("django.tasks.base", "django_tasks.base")


def discover(app: ProjectDibs) -> None:
    """Import the modules, and register with the app what they declare with the framework's own `@task`."""
    for name in app.settings.autodiscover:
        autodiscover_modules(name)
    kinds = tuple(sys.modules[name].Task for name in _STANDARD if name in sys.modules)
    if not kinds:
        return
    from dibs.contrib.django.runs import register

    for module in _modules(app):
        for value in list(vars(module).values()):
            if isinstance(value, kinds) and value.module_path not in app.tasks:
                register(app, value)


def _modules(app: ProjectDibs) -> Iterator[ModuleType]:
    """Yield the modules that were looked for, and what of their packages has been imported."""
    names: list[str] = [
        f"{config.name}.{module}" for config in apps.get_app_configs() for module in app.settings.autodiscover
    ]
    names += app.settings.imports
    inside = tuple(f"{name}." for name in names)
    for name, module in list(sys.modules.items()):
        if name in names or name.startswith(inside):
            yield module


def registered(app: ProjectDibs, path: str) -> Any:
    """Return the task of the framework's own that is registered under this path, or None."""
    found = app.tasks.get(path)
    if found is None:
        app.load()
        found = app.tasks.get(path)
    return None if found is None else getattr(found.function, "standard", None)
