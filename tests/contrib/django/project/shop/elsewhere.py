"""A task that no worker would find: its module is not named `tasks`."""

from __future__ import annotations

from dibs.contrib.django.standard import PACKAGE

if PACKAGE == "django.tasks":
    from django.tasks import task
else:
    from django_tasks import task


@task
def lost() -> None: ...
