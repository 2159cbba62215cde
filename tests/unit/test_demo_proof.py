"""The demo's proof: it must be off whenever something is off."""

from __future__ import annotations

import bz2
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dibs.demo.files import FileJob, Source
from dibs.demo.kill import Kill
from dibs.demo.looks import Look, look_at
from dibs.demo.proof import Evidence, judge
from dibs.demo.run_log import Run
from dibs.jobs import JobRecord
from dibs.states import State

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def row_of(job_id: int, key: str, **changes: Any) -> JobRecord:
    values: dict[str, Any] = dict.fromkeys(JobRecord.__struct_fields__)
    values |= {"id": job_id, "task_key": key, "status": State.DONE, "attempts": 1, "claims": 1, "duplicates": 1}
    return JobRecord(**values | changes)


def job_of(key: str) -> FileJob:
    return FileJob(key, Source(f"/in/{key}", 1, 1), f"/out/{key}.gz")


#: Files a and b. The worker 1 was killed while it ran a, whose second run was worker 2's.
SOUND = Evidence(
    jobs=[job_of("a"), job_of("b")],
    looks={"a": Look.VERIFIED, "b": Look.VERIFIED},
    rows=[row_of(1, "a", attempts=2, claims=2), row_of(2, "b")],
    runs=[
        Run(1, job=1, claims=1, began=10.0),
        Run(2, job=2, claims=1, began=10.0, ended=11.0),
        Run(2, job=1, claims=2, began=13.5, ended=14.0),
    ],
    kill=Kill(1, 4711, 11.0, [row_of(1, "a", status=State.RUNNING)]),
    results=frozenset({"/out/a.gz", "/out/b.gz"}),
)


def test_sound() -> None:
    """Evidence of a demo that went well: one file's job was run again, and used two attempts."""
    proof = judge(SOUND)
    assert proof.problems == []
    assert (proof.files, proof.results, proof.verified, proof.lost, proof.doubled) == (2, 2, 2, 0, 0)
    assert (proof.killed, proof.rerun, proof.duplicates, proof.unrecorded) == (1, 1, 2, 0)
    assert dict(proof.attempts) == {2: 1}


@pytest.mark.parametrize(
    "evidence",
    [
        replace(SOUND, looks={**SOUND.looks, "b": Look.MISSING}),
        replace(SOUND, looks={**SOUND.looks, "b": Look.DAMAGED}),
        replace(SOUND, rows=SOUND.rows[:1]),
        replace(SOUND, rows=[SOUND.rows[0], row_of(2, "b", status=State.FAILED, error="Traceback\nOSError: full")]),
        replace(SOUND, rows=[SOUND.rows[0], row_of(2, "b", status=State.READY)]),
        replace(SOUND, rows=[SOUND.rows[0], row_of(2, "b", status=State.CANCELLED)]),
    ],
)
def test_lost(evidence: Evidence) -> None:
    """A file is lost without a verified result, or when its job is not done; the proof names it."""
    proof = judge(evidence)
    assert proof.lost == 1
    assert "lost: /in/b (" in proof.problems[0]


@pytest.mark.parametrize(
    "evidence",
    [
        replace(SOUND, rows=[*SOUND.rows, row_of(3, "b", duplicates=0)]),
        replace(SOUND, runs=[*SOUND.runs, Run(3, job=2, claims=2, began=12.0, ended=13.0)]),
        replace(SOUND, runs=[*SOUND.runs, Run(3, job=2, claims=1, began=12.0, ended=13.0)]),
        # The killed worker had finished b, and the database knew: it was not among what it held.
        replace(
            SOUND,
            runs=[Run(1, 2, 1, began=9.0, ended=9.5), Run(2, 2, 2, began=13.0, ended=14.0), *SOUND.runs[::2]],
        ),
    ],
)
def test_doubled(evidence: Evidence) -> None:
    """A second job for one file is one too many, and so is a second run that finished."""
    proof = judge(evidence)
    assert proof.doubled == 1
    assert any(problem == "doubled: /in/b" for problem in proof.problems)


def test_a_result_that_the_killed_worker_could_not_tell_of() -> None:
    """Finished, killed before the database heard of it, and so run again: not doubled, but said."""
    first = replace(SOUND.runs[0], ended=10.9)
    proof = judge(replace(SOUND, runs=[first, *SOUND.runs[1:]]))
    assert proof.problems == []
    assert (proof.doubled, proof.unrecorded) == (0, 1)


def test_what_else_is_off() -> None:
    """No kill, nothing run again, a duplicate not recorded, and a result that is nobody's are all seen."""
    for evidence, words in [
        (replace(SOUND, kill=None), "no worker could be killed"),
        (replace(SOUND, runs=SOUND.runs[1:]), "no job of the killed worker was run again"),
        (replace(SOUND, rows=[SOUND.rows[0], row_of(2, "b", duplicates=0)]), "1 are recorded as duplicates"),
        (replace(SOUND, results=SOUND.results | {"/out/c.gz"}), "belong to no file: /out/c.gz"),
        (replace(SOUND, looks=dict.fromkeys("ab", Look.CHANGED)), "nothing to prove"),
    ]:
        problems = judge(evidence).problems
        assert len(problems) == 1
        assert words in problems[0]


def test_a_file_that_changed_is_left_out() -> None:
    """A source that was changed or removed while the demo ran can prove nothing, whatever became of its job."""
    rows = [SOUND.rows[0], row_of(2, "b", status=State.CANCELLED, duplicates=0), row_of(3, "b", status=State.CANCELLED)]
    proof = judge(replace(SOUND, looks={**SOUND.looks, "b": Look.CHANGED}, rows=rows))
    assert proof.problems == []
    assert (proof.files, proof.results, proof.verified, proof.duplicates, proof.changed) == (1, 1, 1, 1, 1)


def test_looks(tmp_path: Path) -> None:
    """A result is unpacked and compared with its source, byte by byte, as it is now."""
    source, result = tmp_path / "source", tmp_path / "result.bz2"
    source.write_bytes(b"x" * 100_000)
    found = os.stat(source)
    job = FileJob("key", Source(str(source), found.st_size, found.st_mtime_ns), str(result))
    assert look_at(job) is Look.MISSING
    whole = bz2.compress(source.read_bytes())
    result.write_bytes(whole)
    assert look_at(job) is Look.VERIFIED
    for damaged in (b"", whole[:-9], whole[:40], b"nothing packed", bz2.compress(b"y" * 100_000)):
        result.write_bytes(damaged)
        assert look_at(job) is Look.DAMAGED
    source.write_bytes(b"y")
    assert look_at(job) is Look.CHANGED
    source.unlink()
    assert look_at(job) is Look.CHANGED
