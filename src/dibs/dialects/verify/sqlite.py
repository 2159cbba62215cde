"""What verifies SQLite, which has no server and no row locks."""

from __future__ import annotations

import sqlite3
from typing import ClassVar

from dibs.dialects.verify.verifying import Verifying
from dibs.ops import Op, fetch


class VerifyingSQLite(Verifying):
    has_sessions = False

    FACTS: ClassVar[str] = "SELECT journal_mode, synchronous FROM pragma_journal_mode, pragma_synchronous"

    def facts(self) -> Op[list[str]]:
        ((journal, synchronous),) = yield from fetch(self.FACTS, alone=True)
        words = ("off", "normal", "full", "extra")
        return [
            f"SQLite {sqlite3.sqlite_version}",
            f"journal_mode = {journal}",
            f"synchronous = {words[synchronous]}",
            "one machine, one writer at a time",
        ]
