"""MySQL: its data directory, its command line, its replica. MariaDB is told apart in its own file."""

from __future__ import annotations

import os
import signal
import socket
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from servers import debian
from servers.engine import Engine, Options, initialise, version_in
from servers.errors import Unavailable
from servers.places import cache, made_once

DATABASE = "dibs_test"
USER, PASSWORD = "dibs", "dibs"

# One statement a line: MariaDB's bootstrap knows no other way.
ACCOUNTS = f"""\
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
CREATE DATABASE {DATABASE};
GRANT ALL ON `dibs\\_%`.* TO '{USER}'@'%';
GRANT PROCESS ON *.* TO '{USER}'@'%';
CREATE USER 'repl'@'%' IDENTIFIED BY 'repl';
GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%';
"""

ALWAYS = {
    "bind_address": "127.0.0.1",
    "skip_name_resolve": "ON",
    "max_connections": "400",
    "character_set_server": "utf8mb4",
    "performance_schema": "ON",
    "innodb_buffer_pool_size": "256M",
    "log_bin": "binlog",
    "binlog_format": "ROW",
}
# A crash of the machine may lose the last commits, a crash of the server not.
FAST = {
    "innodb_flush_log_at_trx_commit": "0",
    "sync_binlog": "0",
    "innodb_flush_method": "nosync",
    "innodb_doublewrite": "OFF",
}
# MariaDB's own default does not sync the binary log, and rolls back what is missing from it after a crash.
DURABLE = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1"}
# A synchronous commit is waited for, whatever it takes (milliseconds): no falling back to asynchronous.
FOR_EVER = "4294967295"
# The first byte of a server's greeting. 255 in its place is an error, such as too many connections.
PROTOCOL_10 = 10


class MySQLFamily(Engine):
    """What MySQL and MariaDB have in common."""

    stop_signals: ClassVar = {"fast": signal.SIGTERM, "immediate": signal.SIGKILL, "kill": signal.SIGKILL}
    ending = signal.SIGKILL
    always: ClassVar[Options]

    def __init__(self, package: str, suite: str, program: str) -> None:
        self.source = f"Debian {suite}"
        self.prefix = debian.prefix(package, suite)
        self.program = self.prefix.command(program)
        self.version = version_in([*self.program, "--no-defaults", "--version"], r"\bVer (\d[\d.]*\d)")

    @property
    @abstractmethod
    def share(self) -> Path:
        """The folder of messages, character sets and SQL files."""

    def template(self) -> Path:
        return made_once(cache() / "data" / f"{self.kind}-{self.version}", self._initialise) / "data"

    @abstractmethod
    def _initialise(self, place: Path) -> None: ...

    def _server(self, place: Path) -> list[str]:
        command = [*self.program, "--no-defaults", f"--basedir={self.prefix.folder / 'usr'}"]
        command += [f"--lc-messages-dir={self.share}", f"--character-sets-dir={self.share / 'charsets'}"]
        command += [f"--plugin-dir={self.prefix.folder / 'usr' / 'lib' / 'mysql' / 'plugin'}"]
        command += [f"--datadir={place / 'data'}", f"--tmpdir={place / 'tmp'}"]
        (place / "tmp").mkdir(exist_ok=True)
        # It runs as root where that is asked for in so many words.
        return command + (["--user=root"] if os.getuid() == 0 else [])

    def command(self, place: Path, port: int, *, durable: bool, options: Options) -> list[str]:
        speed = DURABLE if durable else FAST
        settings = {**ALWAYS, **self.always, **speed, "server_id": str(port), **options}
        command = [*self._server(place), f"--port={port}"]
        command += [f"--socket={place / 's'}", f"--pid-file={place / 'pid'}"]
        return command + [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]

    def ready(self, place: Path, port: int, pid: int) -> bool:
        """Read its greeting, sent when all else is done. Without its socket, the port is another server's."""
        if not (place / "s").exists():
            return False
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                return connection.recv(5)[4:] == bytes([PROTOCOL_10])
        except OSError:
            return False

    def before_start(self, place: Path) -> None:
        (place / "s").unlink(missing_ok=True)

    #: What makes a replica a primary, in two parts: between them it carries out what it has received.
    promotion: ClassVar[tuple[str, tuple[str, ...]]]

    @abstractmethod
    def _catch_up(self, cursor: Any) -> None: ...

    def promote(self, place: Path, port: int, signal_it: Callable[[signal.Signals], None]) -> None:
        """Over a connection: unlike everything else here this has no other way in."""
        import pymysql

        connect: Any = pymysql.connect  # it has no types
        account = {"host": "127.0.0.1", "port": port, "user": "root", "autocommit": True}
        with closing(connect(**account)) as connection, connection.cursor() as cursor:
            receive_no_more, be_primary = self.promotion
            cursor.execute(receive_no_more)
            self._catch_up(cursor)
            for statement in be_primary:
                cursor.execute(statement)

    def url(self, port: int) -> str:
        return f"{self.kind}://root@127.0.0.1:{port}/{DATABASE}"

    def user_url(self, port: int) -> str:
        return f"{self.kind}://{USER}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"


class MySQL(MySQLFamily):
    """MySQL as Debian sid has it: no other suite, and neither pip nor npm, has a MySQL server."""

    kind = "mysql"
    title = "MySQL"
    always: ClassVar = {
        "mysqlx": "OFF",
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "innodb_redo_log_capacity": "64M",
        "secure_file_priv": "NULL",
    }

    def __init__(self, series: str) -> None:
        super().__init__("mysql-server-core", "sid", "sbin/mysqld")
        if not f"{self.version}.".startswith(f"{series}."):
            raise Unavailable(f"no MySQL {series}: Debian sid has {self.version}")

    @property
    def share(self) -> Path:
        return self.prefix.folder / "usr" / "share" / "mysql"

    def _initialise(self, place: Path) -> None:
        accounts = place / "accounts.sql"
        accounts.write_text(f"{ACCOUNTS}GRANT SELECT ON performance_schema.* TO '{USER}'@'%';\n")
        how = ["--initialize-insecure", f"--init-file={accounts}", "--skip-log-bin"]
        how += ["--innodb-redo-log-capacity=32M", "--innodb-flush-method=nosync"]
        initialise([*self._server(place), *how])
        # Its identity, which a primary and its replica must not share. The server makes a new one.
        (place / "data" / "auto.cnf").unlink(missing_ok=True)

    # AFTER_SYNC, its default: what a replica does not have yet nobody has read on the primary either.
    synchronous = (
        {
            "plugin_load_add": "semisync_source.so",
            "rpl_semi_sync_source_enabled": "ON",
            "rpl_semi_sync_source_timeout": FOR_EVER,
        },
        {"plugin_load_add": "semisync_replica.so", "rpl_semi_sync_replica_enabled": "ON"},
    )
    promotion = (
        "STOP REPLICA IO_THREAD",
        (
            "STOP REPLICA",
            "RESET REPLICA ALL",
            "SET GLOBAL super_read_only = OFF",
            "SET GLOBAL read_only = OFF",
        ),
    )

    def _catch_up(self, cursor: Any) -> None:
        cursor.execute(
            "SELECT WAIT_FOR_EXECUTED_GTID_SET(received_transaction_set, 60) "
            "FROM performance_schema.replication_connection_status"
        )

    def follow(self, place: Path, primary_port: int) -> Options:
        statements = place / "follow.sql"
        statements.write_text(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={primary_port}, "
            "SOURCE_USER='repl', SOURCE_PASSWORD='repl', GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION=1, "
            "SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=86400;\n"
            "START REPLICA;\n"
            "SET GLOBAL super_read_only = ON;\n"
        )
        return {"init_file": str(statements), "skip_replica_start": "ON", "relay_log": "relay"}
