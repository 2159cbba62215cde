"""The statements of `dibs doctor`, one class in one file per database. Nothing else imports them.

They are here since they are SQL, and apart from the dialects since no queue runs on them.
"""

from __future__ import annotations

from importlib import import_module

from dibs.dialects.dialect import Dialect
from dibs.dialects.doctor.examining import Examining
from dibs.dialects.urls import DatabaseUrl

_KINDS = {
    "postgresql": "dibs.dialects.doctor.postgres:ExaminingPostgres",
    "mysql": "dibs.dialects.doctor.innodb:ExaminingInnoDB",
    "sqlite": "dibs.dialects.doctor.sqlite:ExaminingSQLite",
}


def examining(dialect: Dialect, url: DatabaseUrl) -> Examining:
    """Return the statements that examine the database at this address, for the dialect's schema and prefix."""
    module, _, name = _KINDS[dialect.family].partition(":")
    kind: type[Examining] = getattr(import_module(module), name)
    return kind(dialect, url)


__all__ = ["Examining", "examining"]
