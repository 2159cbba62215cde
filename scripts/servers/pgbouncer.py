"""PgBouncer: a pooler in front of a PostgreSQL server that runs already. It has no data, only its settings.

with running("postgres") as server, running("pgbouncer", options={"server": server.url}) as pooler:
    connect(pooler.url)
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from servers import debian
from servers.engine import Engine, Options, version_in
from servers.errors import Unavailable
from servers.places import cache, made_once, open_to_others, unprivileged
from servers.postgres import PASSWORD, SUPERUSER, USER

#: The suite of Debian that has a series.
SUITES = {"1.18": "bookworm", "1.24": "trixie"}

#: Unless an option says otherwise. Every other setting is PgBouncer's own default.
ALWAYS = {
    "listen_addr": "127.0.0.1",
    "auth_type": "trust",
    "pool_mode": "transaction",
    "log_connections": "0",
    "log_disconnections": "0",
}


class PgBouncer(Engine):
    """PgBouncer of one series, in transaction mode, from the suite of Debian that has it.

    Its option `server` is the URL of the server that it stands before; all others are PgBouncer's.
    """

    kind = "pgbouncer"
    title = "PgBouncer"
    stop_signals: ClassVar = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "kill": signal.SIGKILL}
    ending = signal.SIGKILL

    def __init__(self, series: str) -> None:
        if series not in SUITES:
            raise Unavailable(f"there is no PgBouncer {series} here: {', '.join(SUITES)}")
        self.user = unprivileged()
        if self.user and not open_to_others(cache()):
            raise Unavailable(f"{self.user.pw_name}, who runs it for root, can't read {cache()}: set DIBS_CACHE")
        self.source = f"Debian {SUITES[series]}"
        self.program = debian.prefix("pgbouncer", SUITES[series]).command("sbin/pgbouncer")
        self.version = version_in([*self.program, "--version"], r"PgBouncer (\S+)", user=self.user)

    def template(self) -> Path:
        return made_once(cache() / "data" / self.kind, lambda place: (place / "data").mkdir()) / "data"

    def command(self, place: Path, port: int, *, durable: bool, options: Options) -> list[str]:
        settings = dict(options)
        if not (server := settings.pop("server", "")):
            raise Unavailable("a pooler stands before a server: options={'server': url}")
        before = urlsplit(server)
        folder = place / "data"
        settings = {**ALWAYS, **settings, "listen_port": str(port), "auth_file": str(folder / "users")}
        settings |= {"unix_socket_dir": "", "pidfile": str(folder / "pid")}
        lines = ["[databases]", f"* = host={before.hostname} port={before.port or 5432}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        (folder / "users").write_text(f'"{SUPERUSER}" ""\n"{USER}" "{PASSWORD}"\n')
        (folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        for name in ("users", "pgbouncer.ini"):  # whatever the umask is: another user may have to read them
            os.chmod(folder / name, 0o644)
        return [*self.program, str(folder / "pgbouncer.ini")]

    def before_start(self, place: Path) -> None:
        (place / "data" / "pid").unlink(missing_ok=True)

    def ready(self, place: Path, port: int, pid: int) -> bool:
        """Is the port open, and is it this one's?"""
        try:
            if (place / "data" / "pid").read_text().strip() != str(pid):
                return False
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        except OSError:
            return False

    def follow(self, place: Path, primary_port: int) -> Options:
        raise Unavailable("a pooler has no replica")

    def promote(self, place: Path, port: int, signal_it: Callable[[signal.Signals], None]) -> None:
        raise Unavailable("a pooler has no replica")

    def url(self, port: int) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{port}/postgres"

    def user_url(self, port: int) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres"
