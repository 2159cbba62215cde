"""Django's own framework for tasks (`django.tasks`), or the package that has it for Django before 6 (`django_tasks`).

They have the same parts under the same names, but for one error.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dibs.errors import ConfigurationError


def _found() -> str:
    for name in ("django.tasks", "django_tasks"):
        if find_spec(name) is not None:
            return name
    raise ConfigurationError("there is no django.tasks: take Django 6 or later, or pip install django-tasks")


PACKAGE = _found()

_base: Any = import_module(f"{PACKAGE}.base")
_exceptions: Any = import_module(f"{PACKAGE}.exceptions")

BaseTaskBackend: Any = import_module(f"{PACKAGE}.backends.base").BaseTaskBackend
signals: Any = import_module(f"{PACKAGE}.signals")
task_backends: Any = import_module(PACKAGE).task_backends

Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
Status: Any = _base.TaskResultStatus
normalize_json: Any = _base.normalize_json

InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
