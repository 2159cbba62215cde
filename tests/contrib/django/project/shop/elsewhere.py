"""A task that no worker would find: its module is not named `tasks`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dibs.contrib.django.standard import PACKAGE

task: Any = import_module(PACKAGE).task  # as `from django.tasks import task`, wherever that is


@task
def lost() -> None: ...
