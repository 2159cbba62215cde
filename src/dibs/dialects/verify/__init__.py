"""The statements of `dibs verify`, one class in one file per database. Nothing else imports them.

They are here since they are SQL, and apart from the dialects since no queue runs on them.
"""

from __future__ import annotations

from importlib import import_module

from dibs.dialects.dialect import Dialect
from dibs.dialects.verify.verifying import Verifying

_KINDS = {
    "postgresql": "dibs.dialects.verify.postgres:VerifyingPostgres",
    "mysql": "dibs.dialects.verify.innodb:VerifyingInnoDB",
    "sqlite": "dibs.dialects.verify.sqlite:VerifyingSQLite",
}


def verifying(dialect: Dialect) -> Verifying:
    """Return the statements that verify this dialect's database, for its schema and prefix."""
    module, _, name = _KINDS[dialect.family].partition(":")
    kind: type[Verifying] = getattr(import_module(module), name)
    return kind(dialect)


__all__ = ["Verifying", "verifying"]
