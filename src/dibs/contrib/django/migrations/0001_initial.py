"""dibs' tables, and the models that read them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models

from dibs.contrib.django import fields
from dibs.contrib.django.schema import ApplyDibs
from dibs.contrib.django.tables import table


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [
        ApplyDibs(1),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("queue", models.CharField(max_length=200)),
                ("task", models.CharField(max_length=255)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("ready", "ready"),
                            ("running", "running"),
                            ("done", "done"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        max_length=10,
                    ),
                ),
                ("priority", models.SmallIntegerField()),
                ("task_key", models.CharField(max_length=255, null=True, verbose_name="key")),
                ("run_at", fields.Moment(verbose_name="not before")),
                ("attempts", models.IntegerField()),
                ("max_attempts", models.IntegerField()),
                ("crashes", models.IntegerField()),
                ("releases", models.IntegerField()),
                ("lease_owner", models.CharField(max_length=255, null=True, verbose_name="worker")),
                ("lease_until", fields.Moment(null=True)),
                ("created_at", fields.Moment(verbose_name="enqueued")),
                ("started_at", fields.Moment(null=True, verbose_name="started")),
                ("finished_at", fields.Moment(null=True, verbose_name="finished")),
                ("expires_at", fields.Moment(null=True, verbose_name="kept until")),
                ("cancel_requested_at", fields.Moment(null=True, verbose_name="to be cancelled since")),
                ("payload", fields.JsonText(verbose_name="arguments")),
                ("result", fields.JsonText(null=True)),
                ("error", models.TextField(null=True)),
                ("errors", fields.JsonText(null=True, verbose_name="last errors")),
                ("meta", fields.JsonText(null=True)),
                ("progress", fields.JsonText(null=True)),
                ("checkpoint", fields.JsonText(null=True)),
            ],
            options={
                "db_table": table("jobs"),
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("queue", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("paused_at", fields.Moment(null=True)),
                ("paused_by", models.CharField(max_length=255, null=True)),
            ],
            options={
                "db_table": table("queues"),
                "managed": False,
            },
        ),
    ]
