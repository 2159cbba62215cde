"""The query of the deploying page, as it stands there."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from databases import Database

PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")


def test_scaling_query(db: Database) -> None:
    """It counts what is due and no more, says how long the oldest has waited, and shares it among those that work."""
    postgres, mysql, sqlite = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    query = {"postgres": postgres, "mysql": mysql, "sqlite": sqlite}[db.kind]
    assert [float(each) for each in db.fetch(query)[0]] == [0, 0, 0]
    app = db.app()
    task = app.task(name="mail")(lambda: None)
    try:
        for _ in range(6):
            task.enqueue()
        task.using(delay=timedelta(hours=1)).enqueue()
        running = [job.id for job in app.jobs()][-3:]
        for number, job_id in enumerate(running):
            owner = f"worker {number % 2}"
            db.execute(
                "UPDATE dibs_jobs SET status = 'running', lease_owner = :owner WHERE id = :id", owner=owner, id=job_id
            )
        ready, oldest, per_worker = (float(each) for each in db.fetch(query)[0])
        assert (ready, per_worker) == (3, 1.5)
        assert oldest == pytest.approx(1, abs=30)
    finally:
        app.close()
