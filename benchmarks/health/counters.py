"""What the server itself counts: the dead, what it writes to its log, how often it commits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from ours.connections import kind_of

from dibs import Dibs
from dibs.ops import Fetch

#: Dead rows that are not cleaned away yet; bytes of log ever written; transactions ever committed.
POSTGRES = """
    SELECT (SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = CAST('dibs_jobs' AS regclass)),
        pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'),
        (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())
"""
MYSQL_STATUS = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_os_log_written', 'Innodb_history_list_length')"
MYSQL_HISTORY = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"


@dataclass(frozen=True)
class Counts:
    """None is what a database does not tell.

    `dead`: row versions on PostgreSQL, transactions whose old versions are kept on MySQL and MariaDB.
    `log`: bytes written to the log in all; on SQLite, how long it is now.
    """

    dead: int | None
    log: int
    commits: int | None


class Counters:
    """Asks the server over a connection of its own."""

    def __init__(self, url: str) -> None:
        self._kind = kind_of(url)
        self._file = Path(urlsplit(url).path.removeprefix("/") + "-wal")
        self._connection = Dibs(url).store.open()

    def read(self) -> Counts:
        match self._kind:
            case "postgres":
                ((dead, log, commits),) = self._connection.answer(Fetch(POSTGRES, {}))
                return Counts(int(dead), int(log), int(commits))
            case "sqlite":
                return Counts(None, self._file.stat().st_size if self._file.exists() else 0, None)
            case kind:
                status = dict(self._connection.answer(Fetch(MYSQL_STATUS, {})))
                dead = status.get("Innodb_history_list_length")
                if kind == "mysql":
                    ((dead,),) = self._connection.answer(Fetch(MYSQL_HISTORY, {}))
                return Counts(int(dead or 0), int(status["Innodb_os_log_written"]), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
