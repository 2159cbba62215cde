"""Sessions that are set in other ways than usual: their users may have chosen it long ago, or the server for them."""

from __future__ import annotations

import pytest

from databases import Database
from dibs import UnsupportedConnection
from worker.users import KINDS, users_connection, write

#: What a user's connection is set to, and what it can't carry then. (A file has no such setting.)
NARROW = {
    "postgres": (["SET client_encoding = 'LATIN1'"], "日"),
    "mysql": (["SET NAMES utf8mb3", "SET SESSION sql_mode = ''"], "😀"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_a_connection_cannot_carry(db: Database, kind: str) -> None:
    """It is refused before anything is sent, with what to do: no job with question marks in it, no error of a driver's; the
    transaction goes on. What it can carry gets there whole."""
    app = db.app()
    statements, beyond = NARROW.get(db.kind, ([], ""))

    @app.task(name="t")
    def t(text: str) -> None: ...

    with users_connection(app, kind) as connection:
        for statement in statements:
            write(connection, statement)
        jobs = {text: t.using(connection=connection, queue=f"q{text}").enqueue(text).id for text in ("plain", "é")}
        if beyond:
            with pytest.raises(UnsupportedConnection, match="character set is .*, which has no '.'"):
                t.using(connection=connection).enqueue(f"a {beyond}")
            with pytest.raises(UnsupportedConnection, match="character set is"):
                t.using(connection=connection, key=f"k{beyond}").enqueue("plain")
            with pytest.raises(UnsupportedConnection, match="character set is"):
                app.enqueue_many([t.call(text) for text in ("a", beyond)], connection=connection)
        connection.commit()
    assert {(job.id, job.queue, job.payload["text"]) for job in app.jobs()} == {
        (job_id, f"q{text}", text) for text, job_id in jobs.items()
    }
    app.close()


def test_a_session_that_is_limited_to_a_few_rows(db: Database) -> None:
    """A user may have set how many rows an answer has at most: none of a bulk's jobs is taken for a duplicate for that."""
    app = db.app()

    @app.task(name="t")
    def t(number: int) -> None: ...

    with users_connection(app) as connection:
        if db.kind == "mysql":
            write(connection, "SET SESSION sql_select_limit = 1, sql_safe_updates = 1")
        bulks = [
            app.enqueue_many([t.using(key=f"k{number}").call(number) for number in range(5)], connection=connection)
            for _ in range(2)
        ]
        connection.commit()
    assert [job.created for bulk in bulks for job in bulk] == [True] * 5 + [False] * 5
    assert {job.id for job in app.jobs()} == {job.id for job in bulks[0]} == {job.id for job in bulks[1]}
    app.close()


def test_whatever_the_environment_says(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """dibs' own connections carry every text: a result that one of them could not send would not be settled, and its job
    would run for ever."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGDATESTYLE", "German")  # in which the driver reads no times
    app = db.app()

    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    job = echo.using(queue="日").enqueue("😀")
    app.worker(burst=True).run()
    assert app.job(job.id).result == "😀"
    app.close()
