"""What every statement about a job must look like."""

from __future__ import annotations

import re

from dibs.dialects.postgres import Postgres
from dibs.states import State
from house.sources import URLS, dialect, statements

STATEMENTS = [(name, constant, text) for name in URLS for constant, text in statements(dialect(name))]

JOBS = r"(?:\"\w+\"|`\w+`)\.dibs_jobs\b"
CHANGES = re.compile(
    rf"UPDATE {JOBS}|UPDATE JSON_TABLE\(.*JOIN {JOBS}|DELETE FROM {JOBS}|DELETE {JOBS} FROM", re.DOTALL
)

#: Changes of jobs that name no status, each with its reason.
WITHOUT_STATUS = {
    "DROP_JOB": "takes a row back that the same transaction has inserted, because its key was taken",
    "EMPTY_JOBS": "empties the queue between two tests",
}

#: Changes of running jobs that do not name the claim, each with its reason.
WITHOUT_CLAIMS = {
    ("*", "ASK_RUNNING"): "a person wants the job cancelled, whoever runs it; the claim is not touched",
    ("*", "TAKE_BACK"): "upkeep, of rows that it has locked, whose lease is past, and whose owner it names",
    ("*", "MARK_STARTED"): "of rows that were locked and whose claims were compared just before",
    ("mysql", "RENEW"): "of rows that were locked and whose claims were compared just before",
    ("mysql", "SETTLE_UNKEPT"): "of rows that were locked and whose claims were compared just before",
    ("mariadb", "RENEW"): "as in MySQL",
    ("mariadb", "SETTLE_UNKEPT"): "as in MySQL",
}
WITHOUT_OWNER = {"ASK_RUNNING"}


def conditions(text: str) -> str:
    """Return a statement without what it sets: what is left says which rows it means."""
    return re.sub(r"\bSET\b.*?\bWHERE\b", "WHERE", text)


def believed(text: str) -> set[State]:
    """Return the statuses that a statement's rows must have."""
    where = conditions(text)
    lists = re.findall(r"\bstatus (?:= |IN \()((?:'\w+'(?:, )?)+)", where)
    if re.search(r"\bstatus = v\.status\b", where):  # by way of a list that is joined, whose status is a constant
        lists += re.findall(r"'(\w+)' AS status", text)
    return {State(word) for words in lists for word in re.findall(r"\w+", words)}


def test_a_change_says_what_it_believes() -> None:
    """Every UPDATE and DELETE of a job says which status it believes in; of a running one whose claim, too."""
    found: dict[str, set[str]] = {name: set() for name in URLS}
    for database, constant, text in STATEMENTS:
        if not CHANGES.search(text):
            continue
        found[database].add(constant)
        statuses, where = believed(text), f"{database}: {constant}: {text}"
        assert statuses or constant in WITHOUT_STATUS, where
        if State.RUNNING in statuses:
            excused = {("*", constant), (database, constant)} & WITHOUT_CLAIMS.keys()
            assert excused or re.search(r"\bclaims = |\(id, claims\) IN", conditions(text)), where
            assert constant in WITHOUT_OWNER or re.search(r"\blease_owner = ", conditions(text)), where
    for name, constants in found.items():
        missed = {"CLAIM", "SETTLE", "RENEW", "FINISH", "TAKE_BACK", "END_EXPIRED", "PRUNE_JOBS", "REQUEUE"} - constants
        assert not missed, f"{name}: the rule has not seen {missed}"


def test_no_exception_is_out_of_date() -> None:
    """Each statement on the lists is there, and changes jobs."""
    there = {(database, constant) for database, constant, text in STATEMENTS if CHANGES.search(text)}
    for database, constant in WITHOUT_CLAIMS:
        assert {(name, constant) for name in URLS if database in ("*", name)} <= there
    assert WITHOUT_STATUS.keys() <= {constant for _, constant in there}


def test_statuses_are_literals() -> None:
    """As parameters they would keep a planner from the partial indexes."""
    odd = [
        (database, constant)
        for database, constant, text in STATEMENTS
        if re.search(r"\bstatus\s*(=|<>|IN)\s*\(?(CAST\()?:", conditions(text))
    ]
    assert odd == []


def test_parameters_are_cast() -> None:
    """Where drivers prepare by type, and others send text, both then mean the same."""
    odd = {}
    for constant in [name for name in vars(Postgres) if name.isupper()]:
        text = re.sub(r"CAST\(:\w+ AS [\w\[\]]+\)", "", getattr(dialect("postgres"), constant))
        if bare := set(re.findall(r"(?<![:\w]):([a-z_]+)\b", text)):
            odd[constant] = bare
    assert odd == {}


def test_tables_are_qualified() -> None:
    """No search path is relied on."""
    odd = [
        (database, constant)
        for database, constant, text in STATEMENTS
        if re.search(r"(?:FROM|JOIN|INTO|UPDATE|USING) dibs_", text)
    ]
    assert odd == []


def test_nothing_is_left_unspelt() -> None:
    """Each word in braces has been replaced by the database's own."""
    assert [(database, constant) for database, constant, text in STATEMENTS if re.search(r"\{\w+\}", text)] == []
