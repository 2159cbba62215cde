"""Ids come from the database, which may lose count of them."""

from __future__ import annotations

import re

import pytest

from databases import Database
from dibs import DatabaseError


def test_a_sequence_that_is_behind(db: Database) -> None:
    """As after a restore without its state, or on what was a logical replica: the error says what mends it."""
    if db.kind != "postgres":
        pytest.skip("here the next id is kept with the table")
    app = db.app()

    @app.task(name="t")
    def t() -> None: ...

    first = min(job.id for job in app.enqueue_many([t.call()] * 5))
    db.fetch("SELECT setval('dibs_jobs_id_seq', :first)", first=first)
    with pytest.raises(DatabaseError, match="gives ids that are taken") as caught:
        t.enqueue()
    with pytest.raises(DatabaseError, match="gives ids that are taken"):
        t.using(key="k").enqueue()
    mend = re.search(r"SELECT setval\(.*\)\)", str(caught.value))
    assert mend is not None
    db.fetch(mend[0])
    assert t.enqueue().id == first + 5
    app.close()
