"""The page of defaults has all of them, and each as the code has it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, get_overloads

import click
import pytest

from dibs import (
    Backoff,
    Dibs,
    Job,
    Release,
    Retry,
    Worker,
    bulk,
    diagnosis,
    events,
    hooks,
    looking,
    migrations,
    register,
    retries,
    secrets,
    selections,
    settings,
    store,
    tasks,
    testing,
)
from dibs.bindings import own_psycopg, own_pymysql, own_sqlite3
from dibs.cli.commands import COMMANDS, commands
from dibs.dialects import innodb, postgres, sqlite
from dibs.dialects.doctor.examining import LONGEST_AFTERWARDS, LONGEST_STATEMENT, MOST_RUNNING
from dibs.doctor import examination
from dibs.findings import Limits
from dibs.registry import Registry
from dibs.settings import Options
from dibs.worker import (
    allowance,
    fetcher,
    health,
    lanes,
    leases,
    lifespan,
    lookout,
    outage,
    polls,
    processes,
    progress,
    scout,
    slots,
    summary,
    supervisor,
    upkeep,
    worker,
)
from dibs.worker import register as worker_register
from house.sources import ROOT

PAGE = (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8")
ROWS = {
    label.strip(): default.strip()
    for label, default in re.findall(r"^\| (.*?) \| (.*?) \|", PAGE, re.MULTILINE)
    if not label.startswith(("**", "setting"))
}

DOCTOR = Limits()

(TASK,) = [each for each in get_overloads(Registry.task) if "max_attempts" in inspect.signature(each).parameters]

#: What settings are of, as the page writes it, and where their defaults are.
OWNERS: dict[str, Callable[..., Any]] = {
    "Dibs": Dibs,
    "@app.task": TASK,
    "using": tasks.Task.using,
    "Release": Release,
    "Retry": Retry,
    "job.join": Job.join,
    "app.jobs": Dibs.jobs,
    "app.worker": Worker,
}
#: Of these the page has every setting that has a default.
WHOLE = ("Dibs", "@app.task", "using", "app.worker")
SAID_IN_ONE_ROW = {"using": ("key_until", "priority", "queue", "max_attempts", "retention")}


def seconds(value: float) -> str:
    for unit, length in (("day", 86_400), ("h", 3_600)):
        if value >= length:
            return f"{value / length:g} {unit}{'s' * (unit == 'day' and value != length)}"
    return f"{value:g} s"


def size(value: int) -> str:
    return f"{value // 1_000_000} MB" if value % 1_000_000 == 0 else f"{value // 1024} KB"


def backoff(value: Backoff) -> str:
    return f"{seconds(value.first)} × {value.factor:g}ⁿ⁻¹, at most {seconds(value.cap)}, ± {value.jitter:.0%}".replace(
        "%", " %"
    )


#: Settings whose default means something that is elsewhere.
MEANT: dict[tuple[str, str], str] = {
    ("Dibs", "codec"): "`JsonCodec()`",
    ("@app.task", "name"): "its module and qualified name",
    ("@app.task", "backoff"): backoff(Options().backoff),
    ("@app.task", "runs_in"): "thread; loop",
    ("@app.task", "key_until"): "pruned",
    ("@app.task", "retention"): (
        f"done {seconds(retries.KEEP_DONE)}, done with a key {seconds(retries.KEEP_DONE_WITH_KEY)}, "
        f"cancelled {seconds(retries.KEEP_CANCELLED)}, failed {seconds(retries.KEEP_FAILED)}"
    ),
    ("app.worker", "queues"): "all, in turns",
    (
        "app.worker",
        "concurrency",
    ): f"{worker.THREADS} threads, {worker.ASYNC_SLOTS} async, a process for each processor",
}

#: What can't be set, and settings that are in no signature: as the page's row begins.
CONSTANTS = {
    "crashes of a job": f"{retries.MAX_CRASHES}",
    "what `using(…)` does not say": "as the task has it",
    "rows of a bulk in one statement": f"up to {size(bulk.CHUNK_BYTES)}",
    "jobs of a bulk kept for another try": f"{bulk.MOST_KEPT:,}",
    "`dibs bench`": "`dibs bench --jobs` has",
    "`dibs worker --processes`": "none",
    "a dead process is started again": f"after {seconds(supervisor.FIRST_PAUSE)}, doubling up to {seconds(supervisor.LONGEST_PAUSE)}",
    "the supervisor waits beyond the grace": seconds(supervisor.MARGIN),
    "a worker that ends by `--max-age`": {0.1: "up to a tenth earlier"}[allowance.EARLY],
    "live (`/livez`, `dibs health`)": f"each thread came round within {seconds(health.QUIET)}",
    "ready (`/readyz`)": f"the database answered within {seconds(health.UNHEARD)}",
    "`--health-host`": "all interfaces",
    "`dibs health --timeout`": "5 s",
    "the summary in the log": f"every {seconds(summary.EVERY)}",
    "poll when idle, at most": (
        f"PostgreSQL {seconds(postgres.Postgres.idle_poll.total_seconds())}, MySQL and MariaDB "
        f"{seconds(innodb.InnoDB.idle_poll.total_seconds())}, SQLite {seconds(sqlite.SQLite.idle_poll.total_seconds())}"
    ),
    "poll where no notification arrives": seconds(worker.DEAF_POLL),
    "a new queue or priority is noticed": f"within {seconds(lookout.LANES_EVERY)}",
    "a job that committed late is seen": f"within {seconds(lanes.LONGEST_UNSEEN)}",
    "looks beside the claims: full scans, for lanes, why a poll was empty": f"where it takes more than {scout.LONG * 1000:g} ms",
    "settled together with the next claim": f"where a claim brings at most {fetcher.FEW} and none waits",
    "claimed ahead": f"what the slots will start within {seconds(slots.AHEAD)}, at most {slots.MOST_AHEAD:,} "
    f"and {slots.MOST_CHARACTERS_AHEAD // 1_000_000} MB of arguments",
    "a job claimed ahead waits for a slot": seconds(fetcher.LONGEST_HELD),
    "a process whose job is to end": (
        f"{seconds(processes.CLEAN_UP)} to clean up after being told to, {seconds(processes.LAST_CLEAN_UP)} where the worker ends"
    ),
    "an async task that swallows its cancellation": f"counts as stuck after {seconds(slots.SWALLOWED)}",
    "progress": f"written about once each {seconds(progress.EVERY)}, a note cut to {settings.LONGEST_NOTE} characters",
    "leaving the lifespan": seconds(lifespan.LONGEST_LEAVING),
    "events that wait for their handlers": f"{events.MOST_WAITING:,}",
    "an async handler": seconds(events.LONGEST_HANDLER),
    "the last events of a process that ends": seconds(events.LAST_WAIT),
    "pruning": f"every {upkeep.PRUNE_EVERY:g} s",
    "a worker's row in the register": f"written every {seconds(worker_register.WRITE_EVERY)}",
    "a worker counts as quiet": f"after {seconds(register.QUIET)}",
    "a worker that is gone": f"leaves the register after {seconds(worker_register.GONE_AFTER)}",
    "names in a worker's row": (
        f"{register.MOST_NAMES:,} queues and {register.MOST_NAMES:,} tasks, {size(register.LONGEST_LIST)} each"
    ),
    "the reason of empty polls": (
        f"looked up after {seconds(polls.FIRST_LOOK)} of them, again after {seconds(polls.LOOK_EVERY)}, "
        f"at most {seconds(polls.LONGEST_UNLOOKED)} later"
    ),
    "what `dibs why` looks at": (
        f"{diagnosis.MOST_OF_LANE:,} due and {diagnosis.MOST_OF_LANE:,} later jobs of a lane, {diagnosis.MOST_LANES:,} lanes, "
        f"{diagnosis.MOST_RUNNING:,} running jobs, {diagnosis.MOST_ENDED:,} that ended"
    ),
    "held rows that `dibs locks` waits for": f"{looking.MOST_WAITED_FOR}, for 1 s at most",
    "the write lock that `dibs locks` tries for": seconds(int(looking.A_MOMENT) / 1000),
    "`dibs doctor` warns of": (
        f"a transaction older than {seconds(DOCTOR.snapshot)}, {DOCTOR.dead:,} dead rows, a clock that is "
        f"{seconds(DOCTOR.clock)} off, work that finds no worker for {seconds(DOCTOR.waiting)}, "
        f"a row {seconds(DOCTOR.late)} past its retention"
    ),
    "`dibs doctor` looks at": (
        f"the newest {DOCTOR.sample:,} jobs, {examination.MOST_LANES} lanes, {MOST_RUNNING:,} running jobs"
    ),
    "a statement of `dibs doctor`": f"{seconds(LONGEST_STATEMENT)}, {seconds(LONGEST_AFTERWARDS)} once one took longer",
    "a finished job that can't be deleted": f"tried again after {seconds(upkeep.POSTPONE)}",
    "arguments are warned about": f"from {size(settings.WARN_PAYLOAD)} on",
    "result": size(settings.MOST_RESULT),
    "checkpoint": size(settings.MOST_CHECKPOINT),
    "`meta`": size(hooks.MOST_META),
    "error": f"{size(settings.MOST_ERROR)}, head and tail; a quarter",
    "orders by filter": f"{selections.ID_BATCH:,} jobs in a transaction, {selections.PAGE:,} ids found at a time",
    "runs in one `dibs_jobs.run()`": f"{testing.MOST_RUNS:,}",
    "queue name": f"{settings.LONGEST_QUEUE} characters",
    "task name, key": f"{settings.LONGEST_TASK} characters",
    "a secret value in an error's text": f"from {secrets.SHORTEST} characters on",
    "connections of a process": f"{inspect.signature(Dibs.new_store).parameters['size'].default} at most",
    "connecting": (
        f"{seconds(own_pymysql.CONNECT_TIMEOUT)}; {seconds(own_pymysql.CONNECT_TIMEOUT_OF_SEVERAL)} to each of several hosts"
    ),
    "waiting for an answer": (
        f"{seconds(own_pymysql.PATIENCE)}; in a worker half a lease, at most {seconds(leases.patience_for(3600.0))}"
    ),
    "trying to connect while the database is away": (
        f"after {seconds(outage.FIRST_PAUSE)}, growing up to {seconds(outage.LONGEST_PAUSE)}, "
        f"± {outage.JITTER:.0%}; all threads of a worker together".replace("%", " %")
    ),
    "tries where a server takes no writes": f"{store.READ_ONLY_TRIES}, each on a new connection",
    "`dibs migrate` waits for a table": (
        f"PostgreSQL 0.5 s, MySQL and MariaDB 1 s; then {seconds(migrations.PAUSE)} for those who wait behind it, "
        f"{migrations.TRIES} times"
    ),
    "waiting for a lock": f"{own_sqlite3.BUSY_TIMEOUT // 1000} s on every database",
    "idle in a transaction": (
        f"PostgreSQL and MariaDB {own_pymysql.MARIADB_SETTINGS['idle_transaction_timeout']} s; "
        f"MySQL, idle at all, {own_pymysql.SETTINGS['wait_timeout']} s"
    ),
    "tries of one op": f"{store.TRIES}, after {seconds(store.FIRST_PAUSE)}, growing up to {seconds(store.LONGEST_PAUSE)}",
    "SQLite's `?synchronous=`": "full",
}


def written(owner: str, setting: str) -> str:
    """Return a setting's default as the page's row should begin with it."""
    if (owner, setting) in MEANT:
        return MEANT[owner, setting]
    value = inspect.signature(OWNERS[owner]).parameters[setting].default
    if owner == "@app.task" and value is None:
        value = getattr(Options(), setting)
    if value is None or value == () or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f'"{value}"'
    if setting in ("delay", "lease", "grace", "timeout", "misfit_wait"):
        return seconds(value)
    return size(value) if setting == "max_payload" else f"{value:,}"


def named(label: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w.@]+)\((\w+)=…\)`", label)


@pytest.mark.parametrize(("label", "default"), ROWS.items(), ids=list(ROWS))
def test_the_page_says_what_the_code_does(label: str, default: str) -> None:
    """Each row begins its second column with what the code has."""
    if settings_here := named(label):
        wanted = [written(owner, setting) for owner, setting in settings_here]
        assert [text for text in wanted if not default.startswith(text)] == []
    else:
        assert label in CONSTANTS, f"say in CONSTANTS of {__file__} which constant of the code this row is about"
        assert default.startswith(CONSTANTS[label])


@pytest.mark.parametrize("owner", WHOLE)
def test_no_setting_is_missing(owner: str) -> None:
    """Every argument that has a default has a row."""
    parameters = inspect.signature(OWNERS[owner]).parameters.values()
    there = {setting for label in ROWS for of, setting in named(label) if of == owner}
    expected = {each.name for each in parameters if each.default is not each.empty} - {*SAID_IN_ONE_ROW.get(owner, ())}
    assert there == expected


def test_no_constant_is_missing() -> None:
    """What the test knows of is on the page."""
    assert CONSTANTS.keys() - ROWS.keys() == set()


def test_options_of_commands_that_have_a_default() -> None:
    """Where a command's option has a default of its own, the page says so; a worker's are those of `app.worker`."""
    of_their_own = {
        f"`dibs {name} {option.opts[0]}` has {option.default}"
        for name in COMMANDS.keys() - {"demo"}
        for option in command_named(name).params
        if isinstance(option, click.Option) and type(option.default) is int and not option.is_flag
    }
    assert of_their_own
    assert [text for text in sorted(of_their_own) if text not in PAGE] == []


def command_named(name: str) -> click.Command:
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    return command


def test_what_databases_share() -> None:
    """Where a row speaks of several databases their settings are alike."""
    lock, idle = own_sqlite3.BUSY_TIMEOUT // 1000, own_pymysql.MARIADB_SETTINGS["idle_transaction_timeout"]
    assert own_pymysql.SETTINGS["innodb_lock_wait_timeout"] == lock
    assert own_psycopg.SETTINGS["lock_timeout"] == f"{lock}s"
    assert own_psycopg.SETTINGS["idle_in_transaction_session_timeout"] == f"{idle}s"
    assert own_psycopg.PARAMETERS["connect_timeout"] == own_pymysql.CONNECT_TIMEOUT
    assert own_psycopg.SEVERAL["connect_timeout"] == own_pymysql.CONNECT_TIMEOUT_OF_SEVERAL
    assert own_psycopg.PatientConnection.patience == own_pymysql.PATIENCE
