"""What examines SQLite, which has no server, no row locks and no sessions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from dibs.dialects.doctor.examining import Catalogue, Examining, Index, judge_plan
from dibs.dialects.spelling import TABLES
from dibs.findings import Finding, Limits, fail, ok, skipped, warn
from dibs.jobs import Lane
from dibs.ops import Op, fetch

#: File systems that are on another machine, or shared with one. Their locks, and the memory that WAL shares, do not hold.
SHARED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "afs", "ceph", "glusterfs", "lustre", "vboxsf"}

MOUNTS = Path("/proc/self/mountinfo")

#: A file with more free pages than this, and more than it uses, is bloated.
MOST_FREE = 25_000


class ExaminingSQLite(Examining):
    # -- the tables --------------------------------------------------------------------------------

    COLUMNS: ClassVar[str] = """
        SELECT m.name, c.name, c.type FROM sqlite_schema AS m, pragma_table_info(m.name) AS c
        WHERE m.type = 'table' AND m.name IN (SELECT value FROM json_each(:tables))
    """
    INDEXES: ClassVar[str] = """
        SELECT i.name, i.partial, c.name FROM json_each(:tables) AS t, pragma_index_list(t.value) AS i,
            pragma_index_info(i.name) AS c
        WHERE i.origin = 'c' ORDER BY i.name, c.seqno
    """

    def catalogue(self) -> Op[Catalogue]:
        tables = self.dialect.names(f"{self.dialect.prefix}{table}" for table in TABLES)
        columns: dict[str, dict[str, str]] = {}
        for table, column, kind in (yield from fetch(self.COLUMNS, tables=tables)):
            columns.setdefault(table, {})[column] = kind.lower()
        indexes: dict[str, Index] = {}
        for name, partial, column in (yield from fetch(self.INDEXES, tables=tables)):
            known = indexes.get(name, Index(()))
            indexes[name] = Index((*known.columns, column), where=bool(partial))
        return Catalogue(columns, indexes)

    def rebuild(self, index: str, create: str) -> str:
        return f"DROP INDEX {self.dialect.quote(index)}; {create}"

    def plan(self, lane: Lane, tasks: list[str]) -> Op[Finding]:
        claim: str = self.dialect.CLAIM  # type: ignore[attr-defined]
        found = re.search(r"FROM \((SELECT id, crashes .*?LIMIT :limit)\)", claim, re.DOTALL)
        assert found, "the claim picks its rows in a subquery"
        index = f"{self.dialect.prefix}dibs_jobs_ready"
        rows = yield from fetch(
            f"EXPLAIN QUERY PLAN {found[1]}",
            **self.of_claim(lane, tasks),
        )
        steps = [str(row[3]) for row in rows]
        problems = [f"it sorts: {step}" for step in steps if "B-TREE FOR ORDER" in step]
        if not any(f"INDEX {index} (queue=? AND priority=?" in step for step in steps):
            problems.append(f"it does not go by {index}: {steps[0]}")
        return judge_plan(index, problems, "dibs doctor names what is wrong with the index under `tables`")

    # -- the file ------------------------------------------------------------------------------------

    PAGES: ClassVar[str] = "SELECT freelist_count, page_count FROM pragma_freelist_count, pragma_page_count"

    def dead(self, limits: Limits) -> Op[Finding]:
        del limits
        ((free, pages),) = yield from fetch(self.PAGES)
        found = f"{free:,} of {pages:,} pages are free"
        if free > MOST_FREE and free * 2 > pages:
            return warn(found, "the file is much larger than what is in it; free pages are used again first", "VACUUM")
        return ok(found)

    def timeouts(self, limits: Limits) -> Op[Finding]:
        yield from ()
        busy = self.url.query.get("busy_timeout")  # dibs waits by itself, so the connection does not know
        if busy is None:
            return ok("busy_timeout as dibs has it")
        found = f"busy_timeout = {busy} ms"
        if float(busy) < limits.short * 1000:
            return warn(
                found,
                "who waits for the writer before him gives up sooner, with `database is locked`",
                "leave busy_timeout out of the URL, or write ?busy_timeout=5000",
            )
        return ok(found)

    SETTINGS: ClassVar[str] = "SELECT journal_mode, synchronous FROM pragma_journal_mode, pragma_synchronous"

    def server(self) -> Op[Finding]:
        yield from self.dialect.suitable()
        ((journal, synchronous),) = yield from fetch(self.SETTINGS)
        found = f"journal_mode = {journal}, synchronous = {('off', 'normal', 'full', 'extra')[synchronous]}"
        if journal != "wal":
            return fail(
                found, "without WAL every reader stops the writer", "PRAGMA journal_mode = WAL, on a local disk"
            )
        if synchronous < 2:
            return warn(
                found, "a power cut may take the last commits with it", "leave synchronous out of the URL: it is full"
            )
        return ok(found)

    def storage(self) -> Op[Finding]:
        yield from ()
        path = str(self.url.file)
        try:
            mounts = MOUNTS.read_text(encoding="utf-8")
        except OSError:
            return skipped("this system does not say what its file systems are")
        return judge_file_system(path, file_system(str(Path(path).resolve()), mounts))


def judge_file_system(path: str, kind: str) -> Finding:
    found = f"{path} is on {kind}"
    if kind in SHARED or (kind.startswith("fuse.") and kind != "fuse.fuse-overlayfs"):
        return fail(
            found,
            "over a network locks do not hold and WAL's shared memory is not shared: the file can be damaged",
            "put the file on a local disk; where several machines work on one queue, use a database server",
        )
    return ok(found)


def file_system(path: str, mounts: str) -> str:
    """Return the kind of the file system that a path is on, by the text of /proc/self/mountinfo.

    >>> file_system("/data/dibs.db", "1 0 8:1 / / rw - ext4 /dev/a rw\\n2 1 0:2 / /data rw,sync shared:1 - nfs4 host:/x rw")
    'nfs4'
    """
    best, kind = "", "?"
    for line in mounts.splitlines():
        here, _, there = line.partition(" - ")
        mount = here.split()[4].replace("\\040", " ")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):  # of two in one place the later one is on top
            best, kind = mount, there.split()[0]
    return kind
