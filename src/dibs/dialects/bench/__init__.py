"""The statements of `dibs bench`, one class in one file per database. Nothing else imports them.

They are here since they are SQL, and apart from the dialects since no queue runs on them.
"""

from __future__ import annotations

from importlib import import_module

from dibs.dialects.bench.measuring import Measuring
from dibs.dialects.dialect import Dialect

_KINDS = {
    "postgresql": "dibs.dialects.bench.postgres:MeasuringPostgres",
    "mysql": "dibs.dialects.bench.innodb:MeasuringInnoDB",
    "sqlite": "dibs.dialects.bench.sqlite:MeasuringSQLite",
}


def measuring(dialect: Dialect) -> Measuring:
    """Return the statements that measure this dialect's database, for its schema and prefix."""
    module, _, name = _KINDS[dialect.family].partition(":")
    kind: type[Measuring] = getattr(import_module(module), name)
    return kind(dialect)


__all__ = ["Measuring", "measuring"]
