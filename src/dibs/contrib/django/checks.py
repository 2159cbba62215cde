"""What `manage.py check` says of dibs."""

from __future__ import annotations

from typing import Any

from django.core import checks
from django.db import connections

from dibs.bindings.django_address import knows
from dibs.contrib.django.settings import read
from dibs.errors import ConfigurationError, InvalidArgument


def check_settings(app_configs: Any = None, **kwargs: Any) -> list[Any]:
    """Check `settings.DIBS`, and that a queue can be kept in the database that it names. Nothing is opened."""
    try:
        settings = read()
    except (ConfigurationError, InvalidArgument) as error:
        return [checks.Error(str(error), id="dibs.E001")]
    connection = connections[settings.alias]
    if not knows(connection):
        return [
            checks.Error(
                f"DATABASES[{settings.alias!r}] is {connection.vendor}, which no queue can be kept in.",
                hint='Name another database: DIBS = {"DATABASE": …}',
                id="dibs.E002",
            )
        ]
    return []
