"""The accounts of docs/grants.md: each works with exactly what the page grants it, and without any of it dibs says what."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import pytest

from commands import environment, process, write_jobs
from conftest import wait_for
from databases import NAMES, VARIABLES, new_database
from dibs import Dibs, MissingPrivilege, migrations
from dibs.jobs import Settled, Verdict, Wanted
from dibs.ops import Execute, Fetch
from dibs.states import State
from dibs.tasks import Task
from dibs.worker.upkeep import prune
from house.sources import ROOT

PAGE = ROOT / "docs" / "grants.md"
GRANT = re.compile(r"GRANT (?P<privileges>[\w, ]+) ON (?P<on>.+?) TO (?P<account>\S+);")

#: A name that every statement must quote.
SCHEMA = "Jobs-x"

PROGRAM = """
from dibs import Dibs, Retry, current_job

app = Dibs(schema={schema!r})


@app.task(name="note")
def note(number: int = 0) -> int:
    return number


@app.task(name="again")
def again() -> None:
    if current_job().attempts == 1:
        raise Retry("the first time", delay=0)
"""


class Grant(NamedTuple):
    """One privilege on one thing, as the page writes it."""

    privilege: str
    on: str

    @property
    def named(self) -> str:
        """What a message must call what it is on."""
        return self.on.rpartition(".")[2] if "." in self.on else SCHEMA

    def __str__(self) -> str:
        return f"{self.privilege} ON {self.on}"


def granted(account: str, *, section: str) -> list[Grant]:
    """Return what a section of the page grants an account."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    block = re.search(rf"### {account}\n.*?```sql\n(.*?)```", text, re.DOTALL)
    assert block is not None, f"{PAGE} has no grants of {account} in {section}"
    lines = [GRANT.fullmatch(line) for line in block[1].splitlines()]
    assert all(lines), f"{PAGE}: {account} in {section} has a line that is no grant"
    return [Grant(privilege, line["on"]) for line in lines if line for privilege in line["privileges"].split(", ")]


class Ground:
    """Tables in a schema that must be quoted, made by the admin, and accounts with what the page grants them."""

    def __init__(self, name: str, url: str) -> None:
        self.url = url
        self.postgres = name.startswith("postgres")
        self.section = "PostgreSQL" if self.postgres else "MySQL and MariaDB"
        self.schema = SCHEMA if self.postgres else urlsplit(url).path[1:]
        self._token = secrets.token_hex(4)
        self._root = Dibs(url).store.open()
        self._apps: dict[str, Dibs] = {}
        self.dialect = Dibs(url, schema=self.schema).dialect
        if self.postgres:
            self.run(f'CREATE SCHEMA "{SCHEMA}"')
        self.app("admin").migrate()

    def run(self, sql: str) -> None:
        """Do something as the one who may do everything; tables are written without their schema."""
        self._root.answer(Execute(self.dialect.qualify(sql), {}))

    def fetch(self, sql: str) -> list[tuple[object, ...]]:
        return self.ask(self.dialect.qualify(sql))

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = self._root.answer(Fetch(sql, {}))
        return rows

    def name_of(self, account: str) -> str:
        return f"{account}_{self._token}" if self.postgres else f"'{account}_{self._token}'@'%'"

    def url_of(self, account: str) -> str:
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{account}_{self._token}:p-{self._token}@{host}"))

    def change(self, verb: str, grant: Grant, account: str) -> None:
        """GRANT or REVOKE one privilege, with this ground's names in the place of the page's."""
        ours, theirs = ("public", f'"{SCHEMA}"') if self.postgres else ("`shop`", f"`{self.schema}`")
        on = grant.on.replace(ours, theirs)
        self._root.answer(
            Execute(
                f"{verb} {grant.privilege} ON {on} {'TO' if verb == 'GRANT' else 'FROM'} {self.name_of(account)}", {}
            )
        )

    def app(self, account: str) -> Dibs:
        """Return an app that connects as this account, which is made when it is first asked for."""
        if account not in self._apps:
            name = self.name_of(account)
            if self.postgres:
                self.run(f"CREATE ROLE {name} LOGIN PASSWORD 'p-{self._token}'")
                self.run(f"ALTER ROLE {name} SET search_path = ''")
            else:
                self.run(f"CREATE USER {name} IDENTIFIED BY 'p-{self._token}'")
            for grant in granted(account, section=self.section):
                self.change("GRANT", grant, account)
            self._apps[account] = app = Dibs(self.url_of(account), schema=self.schema)
            app.task(name="note")(_note)
        return self._apps[account]

    @contextmanager
    def without(self, grant: Grant, account: str) -> Iterator[None]:
        """Take one privilege away for the block. Connections made before do not have it either."""
        self.change("REVOKE", grant, account)
        try:
            yield
        finally:
            self.change("GRANT", grant, account)

    def waits_for_a_key(self) -> bool:
        """Does somebody wait for the one who took a key?"""
        if self.postgres:
            where = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        else:
            where = (
                f"information_schema.processlist WHERE db = '{self.schema}' AND id <> connection_id() "
                "AND info LIKE '%INSERT INTO%dibs_keys%'"
            )
        return self.ask(f"SELECT count(*) FROM {where}") != [(0,)]

    def empty(self) -> None:
        self.app("admin").store.run(self.dialect.forget)

    def close(self) -> None:
        for account, app in self._apps.items():
            app.close()
            if self.postgres:
                self.run(f"DROP OWNED BY {self.name_of(account)} CASCADE")
            self.run(f"DROP {'ROLE' if self.postgres else 'USER'} {self.name_of(account)}")
        self._root.close()


def _note(number: int = 0) -> int:
    return number


def note_of(app: Dibs) -> Task[..., int]:
    task = app.task_named("note")
    assert task is not None
    return task


@pytest.fixture(scope="module", params=[name for name in NAMES if name in VARIABLES])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    with new_database(request.param) as url:
        if request.param.startswith("postgres"):
            Dibs(url).migrate()  # tables of the same names, where a search path would find them
        ground = Ground(request.param, url)
        try:
            yield ground
        finally:
            ground.close()


# -- what each account is for ------------------------------------------------------------------------


def produce(ground: Ground) -> None:
    """Enqueue: alone, with a key that is free or held, in bulk, and with a key that another takes at that moment."""
    app = ground.app("producer")
    note = note_of(app)
    assert note.enqueue(number=1).created
    assert note.using(key="one").enqueue(number=1).created
    assert not note.using(key="one").enqueue(number=1).created
    mixed = [note.call(number=2), note.using(key="two").call(number=2), note.using(key="one").call(number=1)]
    assert [job.created for job in app.enqueue_many(mixed)] == [True, True, False]
    holder = ground.app("admin").store.open()
    holder.begin()
    take = "INSERT INTO dibs_keys (task, task_key, job_id) VALUES ('note', 'three', 0)"
    holder.answer(Execute(ground.dialect.qualify(take), {}))
    with ThreadPoolExecutor(1) as thread:
        late = thread.submit(note.using(key="three").enqueue, number=3)
        try:
            wait_for(lambda: late.done() or ground.waits_for_a_key())
        finally:
            holder.commit()
            holder.close()
    assert not late.result().created


def work(ground: Ground) -> None:
    """Run what is due, in this process."""
    ground.app("worker").worker(burst=True).run()


def upkeep(ground: Ground) -> None:
    """Do all that a worker does, one after the other: each statement about jobs, each chore."""
    app, admin = ground.app("worker"), note_of(ground.app("admin"))
    dialect, run = app.dialect, app.store.run
    done, gone, expired = (admin.using(key=key).enqueue(number=1).id for key in ("done", "gone", "expired"))
    for _ in range(3):
        admin.using(key="done").enqueue(number=1)
    ground.run("INSERT INTO dibs_queues (queue, paused_at) VALUES ('paused', '2000-01-01')")
    ground.run("UPDATE dibs_chores SET next_at = '2000-01-01'")

    run(dialect.paused)
    (lane,) = run(lambda: dialect.lanes(None))
    tasks = dialect.names(["note"])
    wanted = Wanted(lane, since=None, tasks=tasks, worker="w", lease=60.0, start=2, limit=3)
    claims = {claim.id: claim.claims for claim in run(lambda: dialect.claim(wanted))}
    assert list(claims) == [done, gone, expired]
    run(lambda: dialect.mark_started({expired: claims[expired]}, worker="w"))
    assert run(lambda: dialect.renew(list(claims.items()), worker="w", lease=60.0)).renewed == set(claims)
    ended = [
        Verdict(id=job_id, claims=claims[job_id], status=State.DONE, attempts=1, keep=keep)
        for job_id, keep in ((done, 60.0), (gone, 0.0))
    ]
    assert set(run(lambda: dialect.settle(ended, worker="w")).values()) == {Settled.NOW}

    for chore in ("expire", "prune", "fold"):
        assert run(partial(dialect.chore, chore, every=60.0))
    ground.run(f"UPDATE dibs_jobs SET lease_until = '2000-01-01', lease = 1 WHERE id = {expired}")
    assert [job.id for job in run(lambda: dialect.expire(reachable=9.0, limit=9))] == [expired]
    assert run(lambda: dialect.fold(limit=100)) > 0
    ground.run(f"UPDATE dibs_jobs SET status = 'done', expires_at = '2000-01-01' WHERE id = {expired}")
    with held(ground, "SELECT 1 FROM dibs_keys FOR UPDATE"):
        assert prune(app.store) == 1
    assert run(lambda: dialect.fold(limit=100)) == (0 if ground.postgres else 1)
    ground.run("UPDATE dibs_jobs SET expires_at = '2000-01-01' WHERE status = 'done'")
    assert prune(app.store) == 1
    assert ground.fetch("SELECT count(*) FROM dibs_keys")[0][0] == 0


@contextmanager
def held(ground: Ground, sql: str) -> Iterator[None]:
    """Have a transaction of somebody's hold rows during the block, where that keeps a duplicate from being enqueued: on
    PostgreSQL nobody ever holds a key."""
    if ground.postgres:
        yield
        return
    holder = ground.app("admin").store.open()
    try:
        holder.begin()
        holder.answer(Fetch(ground.dialect.qualify(sql), {}))
        yield
        holder.rollback()
    finally:
        holder.close()


def operate(ground: Ground) -> None:
    """Cancel what waits and what runs, requeue, pause and resume, prune; with keys and duplicates on the jobs."""
    app, admin = ground.app("operator"), note_of(ground.app("admin"))
    waits, runs, ends = (admin.using(key=key).enqueue(number=1).id for key in ("waits", "runs", "ends"))
    admin.using(key="ends").enqueue(number=1)
    ground.run(f"UPDATE dibs_jobs SET status = 'running' WHERE id = {runs}")
    assert sorted(app.cancel([waits, runs], reason="a slip")) == [waits, runs]
    assert app.requeue([waits]) == [waits]
    assert app.pause("default")
    assert app.resume("default")
    look_around(app, waits)
    ground.run(f"UPDATE dibs_jobs SET status = 'done', expires_at = '2000-01-01' WHERE id = {ends}")
    with held(ground, "SELECT 1 FROM dibs_keys FOR UPDATE"):
        assert app.prune() == 1


def look(ground: Ground) -> None:
    look_around(ground.app("dashboard"), note_of(ground.app("admin")).enqueue(number=1).id)


def look_around(app: Dibs, job_id: int) -> None:
    """Ask all that `dibs status`, `jobs`, `show` and `failed` do."""
    assert app.counts()
    app.store.run(app.dialect.overview)
    app.store.run(app.dialect.paused)
    assert job_id in [job.id for job in app.jobs()]
    assert app.job(job_id).task == "note"


ACCOUNTS: dict[str, Callable[[Ground], None]] = {
    "producer": produce,
    "worker": work,
    "operator": operate,
    "dashboard": look,
}


def lacks(ground: Ground, grant: Grant, account: str, duty: Callable[[Ground], None]) -> bool:
    """Is it an error without this privilege, and does the error name it?"""
    ground.empty()
    with ground.without(grant, account):
        try:
            duty(ground)
        except MissingPrivilege as error:
            said = " or ".join(error.grants or [str(error)])
            assert len(error.grants) <= 1, (str(grant), said)
            assert re.search(rf"\b{grant.privilege}\b", said), (str(grant), said)
            assert grant.named in said, (str(grant), said)
            return True
        return False


@pytest.mark.parametrize("account", ACCOUNTS)
def test_each_privilege_is_enough_and_needed(ground: Ground, account: str) -> None:
    """With all of them the account does what it is for; without any one of them it is told which, and how to grant it."""
    duty = ACCOUNTS[account]
    ground.empty()
    duty(ground)
    privileges = granted(account, section=ground.section)
    assert [str(grant) for grant in privileges if not lacks(ground, grant, account, duty)] == []


def test_a_worker_asks_for_no_more_than_it_needs(ground: Ground) -> None:
    """What it looks for at its start is what it would miss sooner or later."""
    ground.empty()
    upkeep(ground)
    privileges = granted("worker", section=ground.section)
    assert [str(grant) for grant in privileges if not lacks(ground, grant, "worker", upkeep)] == []


def test_a_worker_process(ground: Ground, tmp_path: Path) -> None:
    """A real one with the worker's privileges does jobs and chores, and ends with 3 when one is taken from it.

    At its start, too, it says what is missing and ends. Nothing has got into the schema of the search path.
    """
    ground.empty()
    ground.app("worker")
    admin = ground.app("admin")
    done, again = note_of(admin).using(key="done").enqueue(number=1), admin.task(name="again")(lambda: None).enqueue()
    note_of(admin).using(key="done").enqueue(number=1)
    old = note_of(admin).enqueue(number=1)
    ground.run(f"UPDATE dibs_jobs SET status = 'done', expires_at = '2000-01-01' WHERE id = {old.id}")
    ground.run("UPDATE dibs_chores SET next_at = '2000-01-01'")
    module = write_jobs(tmp_path, PROGRAM.format(schema=ground.schema))
    arguments = ["worker", f"{module}:app", "--lease", "1s", "--grace", "1s"]
    log = tmp_path / "log"
    with log.open("wb") as file:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dibs", *arguments],
            cwd=tmp_path,
            env=environment(ground.url_of("worker")),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    update = Grant("UPDATE", "public.dibs_jobs" if ground.postgres else "`shop`.dibs_jobs")
    try:
        wait_for(lambda: [admin.job(job.id).status for job in (done, again)] == ["done", "done"], within=40)
        wait_for(lambda: ground.fetch("SELECT count(*) FROM dibs_jobs") == [(2,)], what="the old job to be pruned")
        assert (admin.job(again.id).attempts, worker.poll()) == (2, None)
        lines = log.read_text().splitlines()
        assert not [line for line in lines if "privilege" in line and "dibs_workers" not in line]
        with ground.without(update, "worker"):
            note_of(admin).enqueue(number=2)
            assert worker.wait(30) == 3
    finally:
        worker.kill()
        worker.wait()
        print(log.read_text())  # shown if the test failed
    assert "GRANT UPDATE ON" in log.read_text()

    chores = Grant("UPDATE", update.on.replace("dibs_jobs", "dibs_chores"))
    with ground.without(chores, "worker"):
        ended = process(arguments, tmp_path, url=ground.url_of("worker"))
    assert ended.code == 3
    assert re.search(r"GRANT UPDATE ON \S+dibs_chores TO", ended.err)
    assert "Traceback" not in ended.err
    if ground.postgres:
        assert ground.ask("SELECT count(*) FROM public.dibs_jobs") == [(0,)]


def test_the_schema_is_too_old(ground: Ground, tmp_path: Path) -> None:
    """One message with both versions, and exit code 4."""
    module = write_jobs(tmp_path, PROGRAM.format(schema=ground.schema))
    ground.app("dashboard")
    ground.run("UPDATE dibs_meta SET value = '1' WHERE name = 'schema'")
    try:
        ended = process(["status", "-A", f"{module}:app"], tmp_path, url=ground.url_of("dashboard"))
    finally:
        ground.run(f"UPDATE dibs_meta SET value = '{migrations.SCHEMA}' WHERE name = 'schema'")
    assert ended.code == 4
    assert len(ended.err.splitlines()) == 1
    assert re.search(rf"at version 1 .*needs {migrations.SCHEMA}: run `dibs migrate`", ended.err)


def test_nobody_but_the_admin_migrates(ground: Ground) -> None:
    """`dibs migrate` without the privilege to make tables names it."""
    ground.app("worker")
    other = Dibs(ground.url_of("worker"), schema=ground.schema, prefix="other_")
    with pytest.raises(MissingPrivilege, match="CREATE"):
        other.migrate()
    other.close()
