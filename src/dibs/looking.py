"""Asks the database, and where it is a file the system, who holds rows of the queue. What was found `holders` puts together."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial

from dibs.bindings import connector
from dibs.bindings.file_locks import end_process, openers
from dibs.connections import Connections
from dibs.dialects.locks import ROWS_OUT_OF_REACH, Question
from dibs.errors import (
    DatabaseError,
    DatabaseUnavailable,
    InvalidArgument,
    MissingPrivilege,
    ReadOnlyDatabase,
    SchemaError,
)
from dibs.holders import Found, LockReport, RowsHeld, Who, report
from dibs.store import RowLocked, Store

#: How long (milliseconds) it is tried to write to a file.
A_MOMENT = "250"

#: So many of the held rows are waited for, at the same time.
MOST_WAITED_FOR = 8


#: What the database tells of who waits is a copy that is as old as it likes while it is read more often than this (seconds).
CACHED = 0.15


def look(app: Connections, queue: str | None) -> LockReport:
    """Return who holds rows of a queue (None: of any), or blocks dibs' statements."""
    with closing(_store(app)) as store:
        questions = app.dialect.lock_questions(queue)
        found = [_ask(partial(_one, store, each), each.lacks, each.locked) for each in questions]
        if app.dialect.finds_by_waiting:
            find = partial(_by_waiting, store, queue)
            found.append(_ask(find, "who holds which rows can't be found without that GRANT", ROWS_OUT_OF_REACH))
        if any(ROWS_OUT_OF_REACH in each.notes for each in found) and not any(_has_table(each) for each in found):
            found.append(Found(notes=[app.dialect.to_be_told_of_tables] * bool(app.dialect.to_be_told_of_tables)))
        if not any(each.counted for each in found):
            found.append(_ask(partial(_unseen, store, queue), "", ""))
        if app.dialect.one_writer:
            found.append(openers(app.url.database))
        try:
            workers = store.run(app.dialect.workers, persistent=False, haste=True)
        except DatabaseError:
            workers = []  # without its register it is only not known which worker it is
        return report(found, workers, queue=queue, host=socket.gethostname()[:255])


def _has_table(found: Found) -> bool:
    return any(lock.strong for lock in found.tables)


def end(app: Connections, session: int) -> bool:
    """End a session, or process, that holds something."""
    holder = next((each for each in look(app, None).holders if each.session == session), None)
    if holder is None:
        return False
    if holder.session == os.getpid() and app.dialect.one_writer:
        raise InvalidArgument("session", "is this very process")
    if app.dialect.one_writer:
        return end_process(session)
    with closing(_store(app)) as store:
        return store.run(partial(app.dialect.end_session, session), persistent=False)


def _store(app: Connections) -> Store:
    """Return connections of their own: those of the app may be the ones that wait."""
    if not app.dialect.one_writer:
        return app.new_store(name="dibs locks", size=MOST_WAITED_FOR + 1)
    url = replace(app.url, query={**app.url.query, "busy_timeout": A_MOMENT})
    return Store(app.dialect, connector(url), name="dibs locks")


def _one(store: Store, question: Question) -> Found:
    return store.run(question.make, persistent=False, haste=True)


def _ask(find: Callable[[], Found], lacks: str, locked: str) -> Found:
    """Return what was found; or a note why nothing was, so that the other questions are answered all the same."""
    try:
        return find()
    except (DatabaseUnavailable, ReadOnlyDatabase, SchemaError):  # on the last two nobody claims
        raise
    except RowLocked:
        return Found(notes=[locked or lacks] if locked or lacks else [], complete=False)
    except DatabaseError as error:
        said = lacks if "GRANT" in lacks and isinstance(error, MissingPrivilege) else f"{lacks} ({error})"
        return Found(notes=[said] if lacks else [], complete=not lacks)


def _unseen(store: Store, queue: str | None) -> Found:
    """Return in a note how many rows are held, where it can't be seen by whom."""
    held = store.run(partial(store.dialect.held_rows, queue), persistent=False, haste=True)
    which = "1 job is" if len(held) == 1 else f"{len(held):,} jobs are"
    return Found(notes=[f"{which} held by transactions that this user may not see"] if held else [])


def _by_waiting(store: Store, queue: str | None) -> Found:
    """Find out whose the held rows are, by waiting for some of them while another connection looks at who is waited for."""
    held = store.run(partial(store.dialect.held_rows, queue), persistent=False, haste=True)
    if not held:
        return Found(counted=True)
    ids = sorted(held)
    step = max(len(ids) // MOST_WAITED_FOR, 1)
    probed = ids[::step][:MOST_WAITED_FOR]
    waiting: dict[int, int] = {}
    whose: dict[int, Who] = {}

    def wait(job_id: int) -> None:
        with suppress(DatabaseError):  # it was not to be had within the second
            store.run(partial(store.dialect.wait_for_row, job_id, waiting), persistent=False, haste=True)

    with ThreadPoolExecutor(len(probed)) as threads:
        waits = [threads.submit(wait, job_id) for job_id in probed]
        while not all(each.done() for each in waits) and len(whose) < len(probed):
            for waiter, blocker in store.run(store.dialect.waited_for, persistent=False):
                if waiter in waiting and blocker not in waiting:
                    whose.setdefault(waiting[waiter], blocker)
            time.sleep(CACHED)
    owners = set(whose.values())
    one = owners.pop() if len(owners) == 1 else None
    jobs: dict[tuple[Who, str], list[int]] = defaultdict(list)
    for job_id in held if one is not None else whose:
        jobs[whose.get(job_id, one) or 0, held[job_id]].append(job_id)
    rows = [RowsHeld(who, name, len(ids), sorted(ids)[:5]) for (who, name), ids in jobs.items()]
    notes = []
    if one is None and len(held) > len(whose):
        notes.append(
            f"{len(held):,} rows are held; of {len(whose)} it was tried whose they are, the others are theirs, too, or "
            "of transactions that may hold them"
        )
    return Found(rows=rows, notes=notes, counted=one is not None or len(held) == len(whose))
