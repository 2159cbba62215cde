"""The app that a project installs."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class DibsConfig(AppConfig):
    """Importing tasks is left to whoever needs them (a worker, a result): a broken one must not stop `migrate`."""

    name = "dibs.contrib.django"
    label = "dibs"
    verbose_name = "dibs"

    def ready(self) -> None:
        from dibs.contrib.django.checks import check_settings

        checks.register(check_settings)
