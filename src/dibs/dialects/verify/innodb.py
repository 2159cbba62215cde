"""What verifies MySQL and MariaDB."""

from __future__ import annotations

from typing import ClassVar

from dibs.dialects.verify.verifying import Verifying
from dibs.ops import Op, execute, fetch


class VerifyingInnoDB(Verifying):
    # The server's own, since dibs' sessions have some set. By SHOW, which leaves out what a server does not know.
    SETTINGS: ClassVar[str] = """
        SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'read_only', 'super_read_only', 'log_bin', 'binlog_format',
            'transaction_isolation', 'tx_isolation')
    """
    ENGINE: ClassVar[str] = """
        SELECT engine FROM information_schema.tables WHERE table_schema = :schema AND table_name = :jobs
    """

    def facts(self) -> Op[list[str]]:
        settings: dict[str, str] = dict((yield from fetch(self.SETTINGS, alone=True)))
        jobs = f"{self.dialect.prefix}dibs_jobs"
        rows = yield from fetch(self.ENGINE, alone=True, schema=self.dialect.schema, jobs=jobs)
        version = settings.pop("version")
        isolation = settings.pop("transaction_isolation", "") or settings.get("tx_isolation", "")
        settings.pop("tx_isolation", None)
        return [
            f"{self.dialect.name} {version}",
            f"engine {rows[0][0]}" if rows else "no table",
            *(f"{name} = {value}" for name, value in sorted(settings.items())),
            f"isolation {isolation} (dibs' transactions: READ COMMITTED)",
        ]

    SESSION: ClassVar[str] = "SELECT CONNECTION_ID()"
    THERE: ClassVar[str] = "SELECT id FROM information_schema.processlist WHERE id = :id"
    END_SESSION: ClassVar[str] = "KILL :id"

    def end_session(self, number: int, *, name: str) -> Op[bool]:
        del name  # the server keeps none for a session
        if not (yield from fetch(self.THERE, alone=True, id=number)):
            return False
        yield from execute(self.END_SESSION, alone=True, id=number)
        return True
