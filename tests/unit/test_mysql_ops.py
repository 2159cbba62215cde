"""What the statements of MySQL and MariaDB promise beyond what every database's do. Ops are answered by hand."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeVar

import msgspec
import pytest

from dibs.dialects.mariadb import MariaDB
from dibs.dialects.mysql import MySQL
from dibs.jobs import Claim, Lane, NewJob, Settled, Verdict, Wanted
from dibs.ops import Execute, Fetch, Insert, Op, Request
from dibs.params import Style, render
from dibs.states import State

T = TypeVar("T")

SQL = MySQL("shop")
DIALECTS = [SQL, MariaDB("shop")]
NOW = datetime(2026, 1, 1)


def new(**fields: Any) -> NewJob:
    return NewJob(**{"queue": "q", "task": "t", "payload": msgspec.Raw(b"{}")} | fields)


def answer(op: Op[T], *answers: Any) -> tuple[list[Request], T]:
    """Answer an op by hand; return what it asked and what it returned."""
    given = iter(answers)
    asked = [next(op)]
    while True:
        try:
            asked.append(op.send(next(given)))
        except StopIteration as end:
            assert not list(given), "the op asked less than was answered"
            return asked, end.value


def row(job_id: int, *, task: str = "t", crashes: int = 0) -> tuple[Any, ...]:
    """A ready job as a claim reads it."""
    return (job_id, "q", task, "{}", 0, 2, 12, crashes, 0, 5, NOW, *[None] * 6, NOW, NOW, NOW)


def claim(sql: MySQL, *, start: int = 100, limit: int = 100) -> Op[list[Claim]]:
    return sql.claim(
        Wanted(Lane("q", 0), since=None, tasks=sql.names(["t"]), worker="w", lease=60.0, start=start, limit=limit)
    )


def verdict(job_id: int, **fields: Any) -> Verdict:
    given: dict[str, Any] = {"claims": 1, "status": State.DONE, "attempts": 1, "keep": 60.0} | fields
    return Verdict(id=job_id, **given)


def held(job_id: int, *, claims: int = 1, cancelling: int = 0, key: str | None = None) -> tuple[Any, ...]:
    """A job of ours as it is locked to be settled."""
    return (job_id, claims, cancelling, key, None, None)


#: Without those that empty a whole table between two tests: there is no index to name.
STATEMENTS = [
    pytest.param(text, id=f"{sql.name}-{name}")
    for sql in DIALECTS
    for name in dir(sql)
    if name.isupper() and isinstance(text := getattr(sql, name), str) and not name.startswith("EMPTY_")
]


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_a_prefix_is_also_in_the_names_of_indexes(kind: type[MySQL]) -> None:
    """As in the migrations, which make them."""
    sql = kind("shop", "mine_")
    texts = [getattr(sql, name) for name in dir(sql) if name.isupper() and isinstance(getattr(sql, name), str)]
    named = {index for text in texts for index in re.findall(r"FORCE INDEX \((\w+)\)", text)} - {"PRIMARY"}
    assert named
    assert all(index.startswith("mine_dibs_") for index in named)


@pytest.mark.parametrize("text", STATEMENTS)
def test_what_locks_names_its_index(text: str) -> None:
    """No statement that locks rows leaves it to the optimizer through which index it meets them."""
    table = r"`shop`\.dibs_(jobs|keys|duplicates)( AS \w+)?"
    reads = rf"(FROM|UPDATE|STRAIGHT_JOIN) {table}(?! AS| FORCE INDEX)\b"
    if re.search(r"\bUPDATE\b|\bDELETE\b", text):
        assert not re.search(reads, text)


@pytest.mark.parametrize("text", STATEMENTS)
def test_no_values_are_formatted_in(text: str) -> None:
    """Every statement is spelt to its end, and has no other values than named ones."""
    assert not re.search(r"\{\w+\}", text)
    assert "%s" not in render(text, Style.PYFORMAT).text.replace("%%", "")


@pytest.mark.parametrize("sql", DIALECTS)
def test_an_empty_lane_marks_nothing(sql: MySQL) -> None:
    """Nothing to claim costs one statement."""
    asked, claims = answer(claim(sql), [])
    assert claims == []
    assert [type(request) for request in asked] == [Fetch]


def test_a_claim_knows_what_it_made_of_the_rows() -> None:
    """The rows are read before they are changed: fence and attempts are those after. What once crashed is not held."""
    asked, claims = answer(claim(SQL, start=1), [row(1), row(2), row(3, crashes=1)], 2)
    assert [(job.id, job.claims, job.attempts, job.started) for job in claims] == [(1, 6, 3, True), (2, 6, 2, False)]
    assert asked[1].values["ids"] == (1, 2)
    assert asked[1].values["starting"] == (1,)


def test_a_paused_queue_gives_nothing() -> None:
    """The statement that takes the jobs finds the pause and changes none."""
    _, claims = answer(claim(SQL), [row(1)], 0)
    assert claims == []


def test_mariadb_looks_past_the_tasks_of_others() -> None:
    """It would keep locks on what a condition refused, so it looks further without locking, from where it was."""
    asked, claims = answer(
        claim(DIALECTS[1], limit=3), [(NOW, 1)], [row(1), row(2, task="u"), row(3, task="u")], [(NOW, 7)], [row(7)], 2
    )
    assert [job.id for job in claims] == [1, 7]
    assert [type(request) for request in asked] == [Fetch, Fetch, Fetch, Fetch, Execute]
    assert "FOR UPDATE" not in asked[0].sql
    assert "FOR UPDATE" not in asked[2].sql
    assert (asked[2].values["id"], asked[2].values["limit"]) == (4, 2)


def test_mariadb_does_not_look_past_the_end_of_a_lane() -> None:
    """A lane with fewer jobs than were asked for has been seen whole."""
    asked, claims = answer(claim(DIALECTS[1]), [(NOW, 2)], [row(2, task="u")])
    assert claims == []
    assert len(asked) == 2


def test_ids_follow_the_servers_step() -> None:
    """Where servers share the ids (auto_increment_increment), the jobs of one statement are that far apart."""
    asked, ids = answer(SQL.insert_jobs([new(), new(), new()], tell=False), [(3,)], 11)
    assert ids == [11, 14, 17]
    assert [type(request) for request in asked] == [Fetch, Insert]


def test_one_job_is_one_statement() -> None:
    """A single enqueue asks for nothing else, and needs no transaction."""
    asked, ids = answer(SQL.insert_jobs([new()], tell=False), 11)
    assert ids == [11]
    assert [request.alone for request in asked] == [True]


def test_times_travel_as_text_in_utc() -> None:
    """Drivers would print an aware datetime in its own zone, or with it."""
    moment = datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    asked, _ = answer(SQL.insert_jobs([new(run_at=moment)], tell=False), 1)
    assert asked[0].values["run_at_0"] == "2030-01-01 00:00:00.000000"
    assert datetime.fromisoformat("2030-01-01 00:00:00.000000+00:00") == moment.astimezone(UTC)


def test_a_key_that_was_lost_takes_its_job_along() -> None:
    """Whoever is late with a key drops the job that was written for it."""
    jobs = [new(task_key="a"), new(task_key="b")]
    asked, ours = answer(SQL.insert_keyed(jobs, tell=False), [(1,)], 5, 1, [(6,)], 1)
    assert ours == {("t", "b"): 6}
    assert asked[-1].values == {"id": 5}


def test_keys_are_taken_in_order() -> None:
    """Two bulks with the same keys must not meet head-on; the jobs keep the order of the calls."""
    jobs = [new(task_key="b"), new(task_key="a")]
    asked, _ = answer(SQL.insert_keyed(jobs, tell=False), [(1,)], 5, 2, [(5,), (6,)])
    assert msgspec.json.decode(str(asked[2].values["wanted"])) == [["t", "a", 6], ["t", "b", 5]]


def test_only_what_is_locked_and_ours_is_settled() -> None:
    """A row that another claim holds by now is not written to, though its worker is the same."""
    asked, answers = answer(
        SQL.settle([verdict(1), verdict(2)], worker="w"), [held(1), held(2, claims=2)], 1, [(2, "running", 2, "w")]
    )
    assert answers == {1: Settled.NOW, 2: Settled.LOST}
    assert asked[1].values["id"] == 1


def test_a_key_in_somebodys_transaction_is_written_down() -> None:
    """Settling does not wait for it; upkeep lets go of it later."""
    failed = verdict(1, status=State.FAILED)
    asked, answers = answer(SQL.settle([failed], worker="w"), [held(1, key="k")], 1, [], 1)
    assert answers == {1: Settled.NOW}
    assert "dibs_loose_keys" in asked[-1].sql


def test_a_job_to_be_cancelled_is_kept_as_such() -> None:
    """Whatever its verdict says; its time to be kept is that of cancelled jobs."""
    asked, _ = answer(SQL.settle([verdict(1)], worker="w"), [held(1, cancelling=1)], 1)
    assert asked[1].values["status"] == "cancelled"
    assert asked[1].values["keep"] == 7 * 86_400


def test_large_results_are_settled_in_parts() -> None:
    """A server takes only so many bytes in one statement."""
    result = msgspec.Raw(b'"' + b"x" * 60_000 + b'"')
    verdicts = [verdict(job_id, result=result) for job_id in range(40)]
    asked, answers = answer(SQL.settle(verdicts, worker="w"), [held(job_id) for job_id in range(40)], 16, 16, 8)
    lists = [msgspec.json.decode(str(request.values["verdicts"])) for request in asked[1:]]
    assert [entry["id"] for part in lists for entry in part] == list(range(40))
    assert set(answers.values()) == {Settled.NOW}


def test_json_in_a_list_is_text() -> None:
    """The server's JSON would make a float of 2⁶⁴."""
    result = msgspec.Raw(b"18446744073709551616")
    asked, _ = answer(SQL.settle([verdict(1, result=result), verdict(2)], worker="w"), [held(1), held(2)], 2)
    assert '"result":"18446744073709551616"' in str(asked[1].values["verdicts"])
