"""What the tasks of the shop write, so that it can be seen that they ran."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order, paid or not."""

    paid = models.BooleanField(default=False)


class Note(models.Model):
    """What a task has to say."""

    text = models.CharField(max_length=200)
