"""MariaDB, where it is not as MySQL is: it is made by its own SQL files, and follows in its own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from servers.engine import Options, initialise
from servers.errors import Unavailable
from servers.mysql import ACCOUNTS, FOR_EVER, MySQLFamily

#: The suite of Debian that has a series.
SUITES = {"10.11": "bookworm", "11.8": "trixie"}
# mariadb-install-db is a shell script that pipes these into the server. 10.x calls them mysql_….sql.
SYSTEM_TABLES = ("system_tables", "performance_tables", "system_tables_data")


class MariaDB(MySQLFamily):
    """MariaDB of one series, from the suite of Debian that has it."""

    kind = "mariadb"
    title = "MariaDB"
    always: ClassVar = {"gtid_domain_id": "0", "log_slave_updates": "ON", "innodb_log_file_size": "64M"}

    def __init__(self, series: str) -> None:
        if series not in SUITES:
            raise Unavailable(f"there is no MariaDB {series} here: {', '.join(SUITES)}")
        super().__init__("mariadb-server-core", SUITES[series], "sbin/mariadbd")

    @property
    def share(self) -> Path:
        folders = [self.prefix.folder / "usr" / "share" / name for name in ("mariadb", "mysql")]
        return next(folder for folder in folders if (folder / "charsets").exists())

    def _initialise(self, place: Path) -> None:
        (place / "data").mkdir(mode=0o700)
        statements = ["CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"]
        statements += [self._sql(name) for name in SYSTEM_TABLES]
        statements += [(self.share / "maria_add_gis_sp_bootstrap.sql").read_text(), self._sql("sys_schema")]
        statements += ["FLUSH PRIVILEGES;\n", ACCOUNTS, "DROP USER IF EXISTS ''@'localhost';\n"]
        how = ["--bootstrap", "--log-warnings=0", "--enforce-storage-engine=", "--max-allowed-packet=8M"]
        how += ["--net-buffer-length=16K", "--innodb-log-file-size=32M"]
        initialise([*self._server(place), *how], statements="".join(statements))

    def _sql(self, name: str) -> str:
        files = [self.share / f"{prefix}_{name}.sql" for prefix in ("mariadb", "mysql")]
        return next(file for file in files if file.exists()).read_text()

    synchronous = (
        {
            "rpl_semi_sync_master_enabled": "ON",
            "rpl_semi_sync_master_timeout": FOR_EVER,
            "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
        },
        {"rpl_semi_sync_slave_enabled": "ON"},
    )
    promotion = (
        "STOP SLAVE IO_THREAD",
        ("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF"),
    )

    def _catch_up(self, cursor: Any) -> None:
        cursor.execute("SHOW SLAVE STATUS")
        names = [column[0] for column in cursor.description]
        for row in cursor.fetchall():
            cursor.execute("SELECT MASTER_GTID_WAIT(%s, 60)", (dict(zip(names, row, strict=True))["Gtid_IO_Pos"],))

    def follow(self, place: Path, primary_port: int) -> Options:
        statements = place / "follow.sql"
        statements.write_text(
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary_port}, MASTER_USER='repl', "
            "MASTER_PASSWORD='repl', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1;\n"
            "START SLAVE;\n"
            # It doesn't stop root, who has READ_ONLY ADMIN: the account of `user_url` can't write.
            "SET GLOBAL read_only = ON;\n"
        )
        return {"init_file": str(statements), "skip_slave_start": "ON", "relay_log": "relay"}
