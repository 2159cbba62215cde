"""What verifies PostgreSQL."""

from __future__ import annotations

from typing import ClassVar

from dibs.dialects.verify.verifying import Verifying
from dibs.ops import Op, fetch


class VerifyingPostgres(Verifying):
    FACTS: ClassVar[str] = """
        SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only'),
            current_setting('default_transaction_isolation'), current_setting('synchronous_commit')
    """

    def facts(self) -> Op[list[str]]:
        ((version, recovering, read_only, isolation, synchronous),) = yield from fetch(self.FACTS, alone=True)
        return [
            f"PostgreSQL {version}",
            "a replica" if recovering else "primary",
            f"read-only = {read_only}",
            f"isolation {isolation}",
            f"synchronous_commit = {synchronous}",
        ]

    SESSION: ClassVar[str] = "SELECT pg_backend_pid()"

    # By the name too: behind a pooler the same server process may serve somebody else by now.
    END_SESSION: ClassVar[str] = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE pid = CAST(:id AS integer) AND application_name = CAST(:name AS text)
    """

    def end_session(self, number: int, *, name: str) -> Op[bool]:
        rows = yield from fetch(self.END_SESSION, alone=True, id=number, name=name)
        return bool(rows) and bool(rows[0][0])
