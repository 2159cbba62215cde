"""A worker gives each of its empty polls a reason: in the log once per change, in its row, and counted."""

from __future__ import annotations

from contextlib import nullcontext

from conformance.hands import FUTURE, Queue
from conftest import wait_for
from dibs import WorkerRecord
from worker.harness import Site
from worker.program import Program


def test_reason_of_empty_polls(site: Site[Program]) -> None:
    """Of a queue whose only job somebody holds, of one that is paused, and of one with nothing in it; said once, not with
    each poll, counted with each, and with the rows that were skipped. While there is work nothing is said."""
    queue = Queue(site.db)
    held = site.program.note.using(queue="held").enqueue()
    site.program.note.using(queue="paused").enqueue()
    later = site.program.note.using(queue="later", delay=3600).enqueue()
    queue.write(later.id, run_at=FUTURE)
    site.app.pause("paused")
    locks = site.db.locks_rows
    if not locks:
        queue.write(held.id, run_at=FUTURE)

    def reasons() -> WorkerRecord | None:
        found = site.app.workers()
        return found[0] if found and found[0].polls and found[0].detail and found[0].detail.get("empty_polls") else None

    wanted = {"held": "locked" if locks else "scheduled", "paused": "paused", "later": "scheduled", "none": "empty"}
    with queue.locked(held.id) if locks else nullcontext():
        worker = site.start(queues=["held", "paused", "later", "none"])
        seen = wait_for(reasons, what="the row to have the reasons")
        assert seen is not None
        assert seen.detail is not None
        assert seen.detail["empty_polls"] == wanted
        polls = seen.polls or {}
        assert {name: list(counted) for name, counted in polls.items()} == {name: [why] for name, why in wanted.items()}
        assert polls["none"]["empty"] > 1
        assert seen.detail.get("rows_skipped") == ({"held": 1} if locks else None)
        for name, why in wanted.items():
            assert len(worker.lines("INFO", f"queue '{name}' come back empty: {why}")) == 1
    if locks:
        site.wait_ended(held.id)
        wait_for(
            lambda: "held" not in site.app.workers()[0].detail["empty_polls"],  # type: ignore[index]
            what="the row to say no longer that it is locked",
        )
        assert worker.lines("come back empty: locked") == worker.lines("queue 'held'", "locked (1 due, 1 locked)")
    assert worker.complaints() == []
    queue.close()
