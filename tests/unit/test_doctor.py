"""Faults that `dibs doctor` finds and that no test may stage on a server that others use: its questions are answered by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import Dibs
from dibs.dialects.doctor import Examining, examining
from dibs.dialects.doctor.examining import Room, room
from dibs.dialects.doctor.sqlite import file_system, judge_file_system
from dibs.doctor.examination import Examination
from dibs.findings import Finding, Level, Limits
from dibs.ops import Op
from house.sources import URLS

LIMITS = Limits()


def asked(name: str) -> Examining:
    app = Dibs(URLS[name])
    return examining(app.dialect, app.url)


def answered(op: Op[Finding], *answers: Any) -> Finding:
    """Answer an op by hand; return what it found."""
    given = iter(answers)
    next(op)
    try:
        while True:
            op.send(next(given))
    except StopIteration as end:
        finding: Finding = end.value
        return finding


def test_connections() -> None:
    """Those that workers may open count as well as those that are open, and the limit that is nearest."""
    many = Room("", 5, 100, "raise it")
    for used, wanted, level in ((5, 90, Level.OK), (5, 110, Level.WARN), (95, 20, Level.WARN)):
        assert room([many._replace(used=used)], wanted=wanted, limits=LIMITS).level is level
    of_role = Room("this role's ", 2, 20, "let it have more")
    assert room([many, of_role], wanted=10, limits=LIMITS).found.startswith("2 of this role's 20 in use")
    assert room([many._replace(used=99), of_role], wanted=10, limits=LIMITS).found.startswith("99 of 100 in use")


@pytest.mark.parametrize("name", ["mysql", "postgres"])
def test_deadlocks(name: str) -> None:
    """Many of them in a short time are a warning, some are not."""
    for number, seconds, level in ((3, 600, Level.OK), (600, 360_000, Level.OK), (600, 3_600, Level.WARN)):
        status = [[("Threads_connected", "1"), ("Uptime", str(seconds))], [(number,)]]
        answers = status if name == "mysql" else [[(number, seconds)]]
        assert answered(asked(name).deadlocks(LIMITS), *answers).level is level


def test_what_is_not_cleaned_away() -> None:
    """A long history that nobody needs any more, and a file that is mostly free pages."""
    found = answered(asked("mysql").snapshots(LIMITS), 0, [], 0, [(2_000_000,)])
    assert ("history list of 2,000,000" in found.found, "wait" in found.fix) == (True, True)
    levels = [answered(asked("sqlite").dead(LIMITS), [pages]).level for pages in ((30_000, 40_000), (30_000, 90_000))]
    assert levels == [Level.WARN, Level.OK]


def test_plan_that_sorts() -> None:
    """A plan that goes by the right index and sorts all the same is none to claim by."""
    row = ("1", "SIMPLE", "dibs_jobs", None, "ref", "x", "dibs_jobs_ready", "1", None, 9, 100.0, "Using filesort")
    found = answered(asked("mysql").plan(_lane(), ["t"]), [row])
    assert (found.level, "filesort" in found.found) == (Level.FAIL, True)
    scan = {"Node Type": "Index Scan", "Relation Name": "dibs_jobs", "Index Name": "dibs_jobs_ready"}
    for plan, words in (
        ({"Node Type": "Sort", "Sort Key": ["run_at"], "Plans": [scan]}, "it sorts"),
        (scan | {"Filter": "(priority = 0)"}, "priority is a filter"),
    ):
        assert words in answered(asked("postgres").plan(_lane(), ["t"]), [([{"Plan": plan}],)]).found


def _lane() -> Any:
    from dibs.jobs import Lane

    return Lane("q", 0)


def test_file_on_another_machine() -> None:
    """A file on a network share is a failure; on a local disk that is mounted within one it is not."""
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / /share rw - nfs4 h:/x rw\n3 2 8:2 / /share/local rw - xfs /dev/b rw"
    )
    kinds = [file_system(path, mounts) for path in ("/dibs.db", "/share/dibs.db", "/share/local/dibs.db", "/shared")]
    assert kinds == ["ext4", "nfs4", "xfs", "ext4"]
    levels = [judge_file_system("f", kind).level for kind in (*kinds, "fuse.sshfs")]
    assert levels == [Level.OK, Level.FAIL, Level.OK, Level.OK, Level.FAIL]


def test_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler that lends sessions by the transaction jobs start later; who sends no notifications knows that."""

    class Pooled:
        pooled = True

    for notify, level in ((True, Level.WARN), (False, Level.OK)):
        examination = Examination(Dibs(URLS["postgres"], notify=notify), LIMITS, float)
        monkeypatch.setattr(Examination, "connection", Pooled())
        assert examination.pooler().level is level
