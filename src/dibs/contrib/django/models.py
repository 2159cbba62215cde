"""dibs' tables for reading: in queries of yours, in the admin, in tests. Only dibs should write to them."""

from __future__ import annotations

from typing import Any

from django.db import models

from dibs.contrib.django.fields import JsonText, Moment
from dibs.contrib.django.tables import table
from dibs.states import State


class OnItsDatabase(models.Manager):
    """Reads from the database that DIBS names, whatever routers say."""

    def get_queryset(self) -> Any:
        from dibs.contrib.django import app

        return super().get_queryset().using(app.alias)


class Job(models.Model):
    """One request to run one task."""

    id = models.BigIntegerField(primary_key=True)
    queue = models.CharField(max_length=200)
    task = models.CharField(max_length=255)
    status = models.CharField(max_length=10, choices=[(str(state), str(state)) for state in State])
    priority = models.SmallIntegerField()
    task_key = models.CharField("key", max_length=255, null=True)
    run_at = Moment("not before")
    attempts = models.IntegerField()
    max_attempts = models.IntegerField()
    crashes = models.IntegerField()
    releases = models.IntegerField()
    lease_owner = models.CharField("worker", max_length=255, null=True)
    lease_until = Moment(null=True)
    created_at = Moment("enqueued")
    started_at = Moment("started", null=True)
    finished_at = Moment("finished", null=True)
    expires_at = Moment("kept until", null=True)
    cancel_requested_at = Moment("to be cancelled since", null=True)
    cancel_requested_by = models.CharField("to be cancelled by", max_length=255, null=True)
    cancel_reason = models.TextField("reason", null=True)
    payload = JsonText("arguments")
    result = JsonText(null=True)
    error = models.TextField(null=True)
    errors = JsonText("last errors", null=True)
    meta = JsonText(null=True)
    progress = JsonText(null=True)
    checkpoint = JsonText(null=True)

    objects = OnItsDatabase()

    class Meta:
        managed = False
        db_table = table("jobs")

    def __str__(self) -> str:
        return f"{self.id} {self.task}"


class Queue(models.Model):
    """A queue that was paused at least once; others need no row."""

    queue = models.CharField(max_length=200, primary_key=True)
    paused_at = Moment(null=True)
    paused_by = models.CharField(max_length=255, null=True)

    objects = OnItsDatabase()

    class Meta:
        managed = False
        db_table = table("queues")

    def __str__(self) -> str:
        return f"{self.queue}"
