"""What dibs' tables are called in this project, for the models and their migration."""

from __future__ import annotations

from django.db import connections

from dibs.contrib.django.settings import read
from dibs.errors import ConfigurationError, InvalidArgument


def table(name: str) -> str:
    """Return a table's name as `db_table` takes it, qualified where DIBS names a schema."""
    try:
        settings = read()
    except (
        ConfigurationError,
        InvalidArgument,
    ):  # `manage.py check` says what is wrong: the models should not be in its way
        return f"dibs_{name}"
    quote = connections[settings.alias].ops.quote_name
    full = f"{settings.passed_on.get('prefix', '')}dibs_{name}"
    schema = settings.passed_on.get("schema")
    return f"{quote(schema)}.{quote(full)}" if schema else full
