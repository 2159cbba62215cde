"""Why and by whom a job is to be cancelled."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models

from dibs.contrib.django.schema import ApplyDibs


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("dibs", "0001_initial")]
    operations: ClassVar[list[Any]] = [
        ApplyDibs(2),
        migrations.AddField(
            model_name="job",
            name="cancel_requested_by",
            field=models.CharField(max_length=255, null=True, verbose_name="to be cancelled by"),
        ),
        migrations.AddField(
            model_name="job",
            name="cancel_reason",
            field=models.TextField(null=True, verbose_name="reason"),
        ),
    ]
