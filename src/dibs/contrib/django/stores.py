"""How the project's app reaches the database: on Django's connection inside a transaction, on its own outside.

Questions and orders (`app.jobs()`, `app.cancel(…)`) then see what the transaction wrote, take effect with it, and
never wait for its locks, which nobody would let go of meanwhile. So it is in a TestCase, which is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.core import mail
from django.db import connections, transaction

from dibs import ops
from dibs.bindings import Binding, OwnConnection, bind, is_async
from dibs.bindings.django_address import can_be_shared
from dibs.bindings.surroundings import has_begun
from dibs.dialects import Dialect
from dibs.ops import Op
from dibs.store import Store

T = TypeVar("T")


class JoiningStore(Store):
    """Runs ops in the open transaction of Django's connection, else in one of dibs' own."""

    def __init__(self, dialect: Dialect, connect: Callable[[str], OwnConnection], alias: str) -> None:
        super().__init__(dialect, connect)
        self._alias = alias

    def run(self, make: Callable[[], Op[T]], *, once: bool = False, persistent: bool = True, haste: bool = False) -> T:
        if has_begun(connections[self._alias]):
            return ops.run(make(), self._djangos())
        return self.run_alone(make, once=once, persistent=persistent, haste=haste)

    def run_alone(
        self, make: Callable[[], Op[T]], *, once: bool = False, persistent: bool = True, haste: bool = False
    ) -> T:
        """Run the op in a transaction of its own, whatever has begun on Django's connection.

        Where only Django's connection reaches the database (in memory), the transaction is Django's.
        """
        if can_be_shared(connections[self._alias]):
            try:
                return super().run(make, once=once, persistent=persistent, haste=haste)
            finally:
                if _in_tests():
                    self.close()  # a test run drops its database at the end, which nobody may be connected to then
        with transaction.atomic(using=self._alias):
            return ops.run(make(), self._djangos())

    def _djangos(self) -> Binding:
        binding = bind(connections[self._alias])
        assert not is_async(binding)
        return binding


def _in_tests() -> bool:
    """Is this one of Django's test environments? Then mail goes into this box."""
    return hasattr(mail, "outbox")
