"""Rows that somebody else wrote: nothing is imported, built or run because a row says so, and no worker falls over them."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from databases import Database
from dibs import Dibs, InvalidArgument
from dibs.ops import Execute

#: What loads code in queues whose rows name it. The first ones are really there, and would leave a file.
NAMES_OF_CODE = (
    "{module}.run",
    "{module}:run",
    "{module}",
    "os.system",
    "builtins.eval",
    "subprocess:check_output",
    "__main__",
    "../{module}",
    "dibs.app:Dibs",
    "cos\nsystem\n(S'true'\ntR.",
    "'; DROP TABLE dibs_jobs; --",
    "{{7*7}}",
    "é" * 255,
)

#: JSON that other readers make objects of, or fall over; and what is no arguments at all.
PAYLOADS = (
    '{"number": {"py/object": "os.system", "py/reduce": [{"py/function": "os.system"}, ["true"]]}}',
    '{"number": {"__class__": "os._wrap_close", "__reduce__": ["os.system", ["true"]]}}',
    '{"number": "!!python/object/apply:os.system [true]"}',
    '{"number": "gASVIQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpQu"}',
    '{"__init__": 1, "__globals__": {}, "self": 1}',
    '{"number": 1, "number": "two"}',
    '{"number": 1e999999}',
    '{"number": ' + "9" * 5000 + "}",
    '{"number": ' + "[" * 5000 + "]" * 5000 + "}",
    "[]",
    "null",
    "3",
    '"text"',
)
NO_JSON = (
    "",
    "{",
    "{number: 1}",
    "\x01",
    "{'number': NaN}",
    '{"number": "\udcff"}'.encode("utf-8", "replace").decode(),
)

#: For the other columns that are read with a claim.
ODD = (
    '{"dibs.secret": 7}',
    '{"dibs.secret": [{}, null]}',
    "[]",
    "7",
    '"x"',
    '[{"attempt": "one"}, 3]',
    "{}",
    '[{"misfits": "x"}]',
)


def insert(db: Database, task: str, payload: str, **columns: str) -> None:
    """Write a row as somebody does who may write to the table, but not through dibs."""
    values = {"task": task, "payload": payload, **columns}
    typed = "CAST(:{} AS json)" if db.kind == "postgres" else ":{}"
    said = ", ".join(f":{name}" if name == "task" else typed.format(name) for name in values)
    now = {"postgres": "now()", "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')"}.get(db.kind, "UTC_TIMESTAMP(6)")
    db.ask(
        Execute(
            f"INSERT INTO dibs_jobs (queue, {', '.join(values)}, run_at, created_at) VALUES ('default', {said}, {now}, {now})",
            values,
        )
    )


def test_nothing_is_run_because_a_row_says_so(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Names of code are names of unknown tasks, left for others; what is in a payload is data. Jobs after them are done."""
    caplog.set_level(logging.WARNING, logger="dibs")
    trap = f"trap_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{trap}.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'sprung')!r}).touch()\ndef run(*a, **k): Path('/').stat()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    app, ran = Dibs(db.url, misfit_wait=0), []

    @app.task(name="note", max_attempts=1)
    def note(number: int) -> int:
        ran.append(number)
        if number < 0:
            raise ValueError("below zero")
        return number

    names = [name.replace("{module}", trap) for name in NAMES_OF_CODE]
    for name in names:
        insert(db, name, '{"number": 1}')
    payloads = [*PAYLOADS, *(NO_JSON if db.kind != "postgres" else ())]
    for payload in payloads:
        insert(db, "note", payload)
    for odd in ODD:
        for column in ("meta", "errors", "progress", "checkpoint"):
            for payload in ('{"number": 7}', '{"number": "no number"}', '{"number": -1}'):
                insert(db, "note", payload, **{column: odd})
    db.execute("UPDATE dibs_jobs SET max_attempts = 1")
    last = note.enqueue(number=8)
    before = set(sys.modules)

    app.worker(burst=True).run()

    assert not (tmp_path / "sprung").exists()
    assert {name for name in set(sys.modules) - before if name.startswith(("trap_", "antigravity"))} == set()
    assert app.job(last.id).status == "done"
    assert {type(number) for number in ran} <= {int}, "what is no number has not got to the task"
    left = [row[0] for row in db.fetch("SELECT task FROM dibs_jobs WHERE status = 'ready'")]
    assert sorted(left) == sorted(names)
    assert db.fetch("SELECT count(*) FROM dibs_jobs WHERE status = 'running'") == [(0,)]
    statuses = [row[0] for row in db.fetch("SELECT status FROM dibs_jobs WHERE task = 'note'")]
    assert set(statuses) == {"done", "failed"}
    assert "an error of its own" not in caplog.text
    assert "Traceback" not in caplog.text
    for job in app.jobs(limit=1000):  # whoever looks at them does not fall over them either
        app.shown(job)


def test_what_goes_into_a_row_is_bounded(db: Database) -> None:
    """Arguments, `meta` and names are refused beyond their bounds; errors and results are cut or left out."""
    app = Dibs(db.url)
    big = "ö" * 1_000_000

    @app.task(name="echo", max_attempts=1)
    def echo(text: str = "", fail: bool = False) -> str:
        if fail:
            raise RuntimeError(big)
        return big

    for wrong in (
        lambda: echo.enqueue(text=big),
        lambda: echo.using(key="k" * 256).enqueue(),
        lambda: echo.using(queue="q" * 201).enqueue(),
        lambda: app.task(name="n" * 256)(len),
        lambda: app.pause("q" * 201),
        lambda: app.cancel([1], reason="\0"),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    returned, raised = echo.enqueue(), echo.enqueue(fail=True)
    app.worker(burst=True).run()
    assert (app.job(returned.id).status, app.job(returned.id).result) == ("done", None)
    failed = app.job(raised.id)
    assert failed.status == "failed"
    assert 1_000 < len(failed.error or "") <= 16_384
    (row,) = db.fetch(f"SELECT * FROM dibs_jobs WHERE id = {raised.id}")
    assert len(json.dumps(row, default=str, ensure_ascii=False)) < 64_000
