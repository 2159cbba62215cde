"""PostgreSQL: its data directory, its command line, its hot standby."""

from __future__ import annotations

import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from servers import postgres_sources
from servers.engine import Engine, Options, initialise, version_in
from servers.errors import StartFailed
from servers.places import cache, give, made_once, unprivileged

SUPERUSER = "dibs"
USER, PASSWORD = "app", "dibs"

# In single-user mode a statement ends at the end of its line.
ACCOUNTS = f"""\
CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'
GRANT CREATE, CONNECT, TEMPORARY ON DATABASE postgres TO {USER}
GRANT ALL ON SCHEMA public TO {USER}
"""
# The first line that fits decides.
ACCESS = f"""\
host all {USER} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""

ALWAYS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "max_prepared_transactions": "10",
    "log_min_messages": "warning",
    # Not in /dev/shm, where a killed server would leave it.
    "dynamic_shared_memory_type": "mmap",
}
# A crash of the machine may lose the last commits, a crash of the server not.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

# Where the control file says what the server is doing, and what it says when it takes writes: the same in all majors.
STATE_AT, IN_PRODUCTION = 16, 6
PROMOTED_WITHIN = 60.0


class PostgreSQL(Engine):
    """PostgreSQL of one major version."""

    kind = "postgres"
    title = "PostgreSQL"
    stop_signals: ClassVar = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "kill": signal.SIGKILL}
    # Not SIGKILL: it frees its shared memory.
    ending = signal.SIGQUIT
    replica_copies_primary = True

    def __init__(self, major: str) -> None:
        self.user = unprivileged()
        self.programs, self.source, self.version = postgres_sources.programs(major, proof=self._proof)

    def _proof(self, programs: Path) -> str:
        return version_in([programs / "postgres", "--version"], r"PostgreSQL\) (\S+)", user=self.user)

    def template(self) -> Path:
        place = cache() / "data" / f"postgres-{self.version}-{self.source}"
        return made_once(place, self._initialise) / "data"

    def _initialise(self, place: Path) -> None:
        if self.user:
            give(place, self.user)
        data = place / "data"
        # The C collation: the same order everywhere.
        initdb = [str(self.programs / "initdb"), "-D", str(data), "-U", SUPERUSER, "-A", "trust"]
        initialise([*initdb, "-E", "UTF8", "--locale=C", "--no-sync"], user=self.user)
        # The default of the majors before 14 is md5, which does not go with the line above.
        single = [str(self.programs / "postgres"), "--single", "-D", str(data)]
        single += ["-c", "password_encryption=scram-sha-256", "postgres"]
        initialise(single, user=self.user, statements=ACCOUNTS)
        (data / "pg_hba.conf").write_text(ACCESS)

    def command(self, place: Path, port: int, *, durable: bool, options: Options) -> list[str]:
        settings = {**ALWAYS, **({} if durable else FAST), **options}
        command = [str(self.programs / "postgres"), "-D", str(place / "data"), "-p", str(port)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def before_start(self, place: Path) -> None:
        # Left by a server that was killed. It is known to be gone, but its pid may be another process's by
        # now, which would be taken for it.
        (place / "data" / "postmaster.pid").unlink(missing_ok=True)

    def ready(self, place: Path, port: int, pid: int) -> bool:
        """Look where pg_ctl looks."""
        try:
            told = (place / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(told) >= 8 and told[0] == str(pid) and told[7].strip() == "ready"

    def follow(self, place: Path, primary_port: int) -> Options:
        (place / "data" / "standby.signal").touch()
        if self.user:
            give(place / "data", self.user)
        return {"primary_conninfo": f"host=127.0.0.1 port={primary_port} user={SUPERUSER}"}

    # "*": whoever streams. Its commit waits until the standby has the record, not until it can be read there.
    synchronous = ({"synchronous_standby_names": "*", "synchronous_commit": "on"}, {"synchronous_commit": "on"})

    def promote(self, place: Path, port: int, signal_it: Callable[[signal.Signals], None]) -> None:
        """Do as pg_ctl does: a file, a signal, and then look at the control file."""
        asks = place / "data" / "promote"
        asks.touch()
        if self.user:
            give(asks, self.user)
        signal_it(signal.SIGUSR1)
        deadline = time.monotonic() + PROMOTED_WITHIN
        control = place / "data" / "global" / "pg_control"
        while struct.unpack_from("=i", control.read_bytes(), STATE_AT)[0] != IN_PRODUCTION:
            if time.monotonic() > deadline:
                raise StartFailed(f"{self} was not promoted in {PROMOTED_WITHIN:.0f} s", "")
            time.sleep(0.01)

    def url(self, port: int) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{port}/postgres"

    def user_url(self, port: int) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres"
