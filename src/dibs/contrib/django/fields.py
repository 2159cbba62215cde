"""Columns as dibs writes them, for reading through Django's ORM on each of its databases."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


class JsonText(models.TextField):
    """JSON, whatever type the database keeps it in. It is read as text and parsed here: drivers differ."""

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return f"CAST({sql} AS {models.TextField().cast_db_type(compiler.connection)})", params

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else json.loads(value)


class Moment(models.DateTimeField):
    """A time that is UTC in the database, also where its columns know no time zones.

    Django takes such columns for its own time zone, which is another one where USE_TZ is False or the connection
    has a TIME_ZONE.
    """

    def from_db_value(self, value: datetime | None, expression: Any, connection: Any) -> datetime | None:
        if value is None or connection.features.supports_timezones:
            return value
        value = value.replace(tzinfo=UTC)
        return value if settings.USE_TZ else _naive(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if not prepared:
            value = self.get_prep_value(value)
        if value is None or connection.features.supports_timezones:
            return super().get_db_prep_value(value, connection, prepared=True)
        if timezone.is_naive(value):
            value = timezone.make_aware(value, timezone.get_default_timezone())
        return connection.ops.adapt_datetimefield_value(value.astimezone(UTC).replace(tzinfo=None))


def _naive(value: datetime) -> datetime:
    naive: datetime = timezone.make_naive(value, timezone.get_default_timezone())
    return naive
