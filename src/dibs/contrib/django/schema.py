"""dibs' own numbered migrations as operations of Django's."""

from __future__ import annotations

from typing import Any

from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.operations.base import Operation

from dibs import migrations, ops
from dibs.bindings import bind, is_async
from dibs.bindings.django_address import address
from dibs.contrib.django.settings import read
from dibs.dialects import dialect_for


class ApplyDibs(Operation):
    """Applies dibs' migration of that number on the database that DIBS names, unless it is applied already.

    With `DIBS = {"MIGRATIONS": "dibs"}` it does nothing.
    """

    reduces_to_sql = True
    reversible = False

    def __init__(self, number: int) -> None:
        self.number = number

    def state_forwards(self, app_label: str, state: Any) -> None: ...

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        settings = read()
        connection = schema_editor.connection
        if settings.migrations != "django" or connection.alias != settings.alias:
            return
        schema, prefix = settings.passed_on.get("schema"), settings.passed_on.get("prefix", "")
        dialect = dialect_for(address(connection), schema=schema, prefix=prefix)
        text = next(text for number, _, text in migrations.files(dialect) if number == self.number)
        statements = [*dialect.make_room(), *migrations.statements(text)]
        if not schema_editor.collect_sql:
            binding = bind(connection)
            assert not is_async(binding)
            ops.run(dialect.lock_migrations(), binding)
            try:
                if migrations.version(dialect, binding)[0] < self.number:
                    _execute(schema_editor, statements)
            finally:
                if connection.is_usable():
                    ops.run(dialect.unlock_migrations(), binding)
            return
        _execute(schema_editor, statements)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        raise IrreversibleError("a queue is not dropped by unapplying a migration: drop its tables yourself")

    def describe(self) -> str:
        return f"Apply migration {self.number} of dibs"

    @property
    def migration_name_fragment(self) -> str:
        return f"dibs_{self.number:04}"


def _execute(schema_editor: Any, statements: list[str]) -> None:
    for statement in statements:
        schema_editor.execute(statement, params=None)
