"""A server that takes only short statements: what is too long is refused once, with the reason, and harms nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import Unavailable, running

from anomaly.invariants import nothing_lost_nothing_twice
from anomaly.test_sizes import MB, Sizes, long_text
from databases import NAMES, Database
from dibs import DibsError
from worker.harness import Site
from worker.users import users_connection


@pytest.mark.slow
@pytest.mark.parametrize("kind", [name for name in NAMES if name in ("mysql", "mariadb")])
def test_packets_of_one_megabyte(kind: str, tmp_path: Path) -> None:
    """A server that takes statements of 1 MB: a payload of two is one error, at the call, over the connection that there
    is; what comes after it, a bulk of many small ones too, is not touched by that. Neither are results that are too long together."""
    try:
        with running(kind, options={"max_allowed_packet": "1M"}) as server:
            db = Database(kind, server.url)
            db.app().migrate()
            with Site(db, tmp_path, Sizes, max_payload=50 * MB) as site:
                before = connections(db)
                with pytest.raises(DibsError, match="max_allowed_packet") as refused:
                    site.program.digest.enqueue(long_text(2 * MB))
                assert len(str(refused.value)) < 500
                assert connections(db) - before <= 3
                with pytest.raises(Exception), users_connection(site.app) as connection:  # the driver's own error
                    site.program.digest.using(connection=connection).enqueue(long_text(2 * MB))
                worker = site.start(concurrency=50)
                assert site.program.note.enqueue(number=3).join(timeout=10) == 3
                calls = [site.program.digest.call("'" * 9_000) for _ in range(500)]
                jobs = [job.id for job in site.app.enqueue_many(calls)]
                done = site.wait_ended(jobs)
                assert {job.status for job in done} == {"done"}
                nothing_lost_nothing_twice(site, jobs, crashed=False)
                assert worker.complaints() == [], "but for the size of arguments"
            db.close()
    except Unavailable as unavailable:
        pytest.skip(str(unavailable))


def connections(db: Database) -> int:
    """Return how many connections the server has been asked for so far."""
    ((_, number),) = db.fetch("SHOW GLOBAL STATUS LIKE 'Connections'")
    return int(number)
