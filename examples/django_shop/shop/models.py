"""An order, and what its jobs make of it."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=200)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    receipt = models.TextField(default="")
    label = models.CharField(max_length=64, default="")
