"""The workers' register."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations

from dibs.contrib.django.schema import ApplyDibs


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("dibs", "0002_cancel_reason")]
    operations: ClassVar[list[Any]] = [ApplyDibs(3)]
