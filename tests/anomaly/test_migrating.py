"""`dibs migrate` on a queue at work: killed at every step, and on a long table whose jobs are being claimed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from conftest import wait_for
from databases import Database
from dibs import Dibs, migrations
from dibs.bindings.binding import OwnConnection
from dibs.errors import DatabaseError
from dibs.ops import Execute, Fetch, Request
from dibs.troubles import Trouble

#: Rows in the table that is migrated under load; `scripts/migrations` asks for a million.
ROWS = int(os.environ.get("DIBS_TEST_MIGRATION_ROWS", "4000"))

#: How long (seconds) a claim may be kept waiting by a migration.
LONGEST = 1.0

#: How long (seconds) somebody's transaction that has used the table stays open.
HELD = 2.5


# -- killed ------------------------------------------------------------------------------------------


class Doomed:
    """A connection whose process is killed (-9) at the n-th thing that is asked of it: before it is sent, or after."""

    def __init__(self, real: OwnConnection, at: int, *, after: bool) -> None:
        self._real = real
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _pass(self, ask: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = ask()
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    def answer(self, request: Request) -> Any:
        return self._pass(lambda: self._real.answer(request))

    def begin(self, *, writes: bool = True) -> None:
        self._pass(lambda: self._real.begin(writes=writes))

    def commit(self) -> None:
        self._pass(self._real.commit)


FOLDER = Path(migrations.__file__).parent


def killed_at(database: Database, at: int, *, after: bool) -> bool:
    """Migrate in a process that is killed at a step; return False if it came to its end before."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            app = Dibs(database.url)
            doomed: Any = Doomed(app.store.open(), at, after=after)
            migrations.migrate(app.dialect, doomed)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_step(bare: Database, after: bool) -> None:
    """Again and again, each time one step later, with what the one before has left: the next one goes on from there."""
    for at in count(1):
        if not killed_at(bare, at, after=after):
            break
    assert at > 3 * migrations.SCHEMA
    app = bare.app()
    assert app.migrate() == []
    task = app.task(name="t")(lambda: None)
    assert [task.using(key="k").enqueue().created for _ in range(2)] == [True, False]
    app.worker(burst=True).run()
    assert app.counts() == {"default": {"done": 1}}
    app.close()


# -- under load --------------------------------------------------------------------------------------


def numbers() -> list[int]:
    """Return the migrations that can meet a long table: all but the first."""
    return list(range(2, migrations.SCHEMA + 1))


def migrate_below(app: Dibs, number: int) -> None:
    """Make the tables as they were before a migration."""
    connection = app.store.open()
    try:
        for each, _, text in migrations.files(app.dialect):
            for statement in migrations.statements(text) if each < number else []:
                connection.answer(Execute(statement, {}))
    finally:
        connection.close()


class Claimer:
    """Claims jobs as fast as it can, by statements that suit every version of the tables; knows the longest wait."""

    def __init__(self, database: Database) -> None:
        self._connection = database.connect()
        self._skip = "FOR UPDATE SKIP LOCKED" if database.locks_rows else ""
        self._stopping = threading.Event()
        self.longest = 0.0
        self.claimed = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                self._claim()
                self.longest = max(self.longest, time.monotonic() - began)
                time.sleep(0.005)
        except BaseException as error:
            self.error = error

    def _claim(self) -> None:
        while True:
            try:
                self._connection.begin()
                rows = self._connection.answer(
                    Fetch(
                        "SELECT id FROM dibs_jobs WHERE status = 'ready' AND queue = 'default' AND priority = 0 "
                        f"ORDER BY run_at, id LIMIT 5 {self._skip}",
                        {},
                    )
                )
                assert rows, "there are not enough jobs"
                ids = ", ".join(str(row[0]) for row in rows)
                self._connection.answer(
                    Execute(f"UPDATE dibs_jobs SET status = 'running', claims = claims + 1 WHERE id IN ({ids})", {})
                )
                self._connection.commit()
            except Exception as error:
                # A statement that was prepared for the old table: dibs' store begins anew, too.
                if self._connection.trouble(error) not in (Trouble.LOST, Trouble.CONFLICT):
                    raise
                self._connection.rollback()
            else:
                self.claimed += len(rows)
                return

    def enough(self, more: int) -> bool:
        assert self.error is None, self.error
        return self.claimed >= more

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._connection.close()
        assert self.error is None, self.error


@contextmanager
def claiming(database: Database) -> Iterator[Claimer]:
    claimer = Claimer(database)
    try:
        wait_for(lambda: claimer.enough(50))
        yield claimer
        so_far = claimer.claimed
        wait_for(lambda: claimer.enough(so_far + 50), what="claims to go on")
    finally:
        claimer.stop()


def fill(database: Database, rows: int) -> None:
    """Enqueue so many jobs: some through dibs, the rest as copies."""
    columns = "queue, task, payload, priority, max_attempts, run_at, created_at"
    app = database.app()
    connection = app.store.open()
    job = "'default', 't', '{}', 0, 12, '2001-01-01 00:00:00', '2001-01-01 00:00:00'"
    connection.answer(Execute(f"INSERT INTO dibs_jobs ({columns}) VALUES {', '.join([f'({job})'] * 500)}", {}))
    have = 500
    while have < rows:
        more = min(have, rows - have, 50_000)
        connection.answer(
            Execute(f"INSERT INTO dibs_jobs ({columns}) SELECT {columns} FROM dibs_jobs LIMIT {more}", {})
        )
        have += more
    connection.close()
    app.close()


@pytest.mark.parametrize("number", numbers())
@pytest.mark.parametrize("in_use", [False, True], ids=["idle", "in use"])
def test_claims_go_on(
    bare: Database,
    number: int,
    in_use: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A migration of a long table keeps no claim waiting for more than a second, on a quiet machine; also not when
    somebody's transaction has used the table and is left open, so that the migration has to wait for it."""
    if in_use and not bare.locks_rows:
        pytest.skip("one writer at a time: it waits for its turn as all others do")
    app = bare.app()
    if app.dialect.longest_wait is not None:
        monkeypatch.setattr(app.dialect, "hurry", ())  # a whole second, so it may only be the last resort
    migrate_below(app, number)
    fill(bare, ROWS)
    with ExitStack() as stack:
        claimer = stack.enter_context(claiming(bare))
        usual, claimer.longest = claimer.longest, 0.0
        if in_use:
            user = bare.connect()
            stack.callback(user.close)
            user.begin()
            user.answer(Fetch("SELECT id FROM dibs_jobs LIMIT 1", {}))
            letting_go = threading.Timer(HELD, user.rollback)
            letting_go.start()
            stack.callback(letting_go.join)
        began = time.monotonic()
        applied = app.migrate()
        took = time.monotonic() - began
        longest = claimer.longest
    with capsys.disabled():
        if "DIBS_TEST_MIGRATION_ROWS" in os.environ:
            print(
                f"\n{bare.name}: {applied[0]} on {ROWS:,} rows{', in use' if in_use else ''}: {took:.2f} s, "
                f"the longest claim {longest * 1000:.0f} ms (before: {usual * 1000:.0f} ms)"
            )
    assert int(applied[0].split()[0]) == number
    (text,) = [path.read_text() for path in FOLDER.glob(f"{app.dialect.migrations}/{number:04}_*.sql")]
    if in_use and "TABLE dibs_jobs" in text:
        assert took >= HELD - 0.5, "it did not wait for the one who used the table"
    assert longest < LONGEST + 10 * usual
    app.close()


def test_a_table_that_is_never_free(bare: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives up in the end, with an error that says so, and has changed nothing."""
    if not bare.locks_rows:
        pytest.skip("one writer at a time: whoever only reads keeps nobody waiting")
    monkeypatch.setattr(migrations, "TRIES", 2)
    monkeypatch.setattr(migrations, "PAUSE", 0.01)
    app = bare.app()
    migrate_below(app, 2)
    user = bare.connect()
    user.begin()
    user.answer(Fetch("SELECT id FROM dibs_jobs LIMIT 1", {}))
    with pytest.raises(DatabaseError, match="lock"):
        app.migrate()
    user.rollback()
    user.close()
    assert app.migrate()[0].startswith("0002")
    app.close()
