"""Jobs are seen and run in the user's own transaction on every kind of connection, as tests do it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from conformance.connections.kind import Kind, done
from conformance.connections.pairs import on_each
from conformance.hands import Queue
from dibs import Retry, current_job
from dibs.states import State
from dibs.testing import Jobs

#: What drivers, databases and JSON functions are known to change on the way.
DATA: dict[str, Any] = {"text": 'Zoë\'s "100 %s" $1 :a \\ 🍏', "huge": 2**64, "precise": 0.1 + 0.2}


def echo(data: Any) -> Any:
    if current_job().attempts == 1:
        current_job().progress(0.5, "tried")
        raise Retry("once more", delay=60)
    return data


async def aecho(data: Any) -> Any:
    await current_job().acheckpoint(data)
    return current_job().last_checkpoint


@on_each(lambda kind: kind.name != "django")  # whose async code goes other ways: see the tests of its project
def test_run_in_the_users_transaction(queue: Queue, kind: Kind) -> None:
    """Written, claimed, run, retried and settled where nobody else sees it; what comes back is what went in."""
    app = queue.db.app()
    tasks = [app.task(name="echo")(echo), app.task(name="aecho")(aecho)]

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            with Jobs(app, connection=user.connection) as jobs:
                for task in tasks:
                    await user.enqueue(task.using(key="k", connection=user.connection), data=DATA)
                seen = await jobs.aenqueued() if user.is_async else jobs.enqueued()
                assert [each.arguments for each in seen] == [{"data": DATA}] * 2
                first = await jobs.arun() if user.is_async else jobs.run()
                assert [ran.status for ran in first] == [State.READY, State.DONE]
                await jobs.clock.amove(minutes=1) if user.is_async else jobs.clock.move(timedelta(minutes=1))
                second = await jobs.arun() if user.is_async else jobs.run()
                assert [ran.result for ran in (*first[1:], *second)] == [DATA, DATA]
                assert queue.count("dibs_jobs") == 0
            await done(user.rollback())

    kind.run(scenario())
    assert queue.count("dibs_jobs") == queue.count("dibs_keys") == 0
    app.close()
