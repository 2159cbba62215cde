"""The page on hooks shows what works: each snippet is run, Sentry and OpenTelemetry with the real libraries."""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from databases import Database
from dibs import Backoff, Dibs, Event, Release, Secret, current_job

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()


def snippet(words: str, most: int | None = None) -> str:
    """Return the one snippet of the page that has these words in it; of at most so many lines that are not empty."""
    found: str
    (found,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if words in code]
    if most is not None:
        assert len([line for line in found.splitlines() if line.strip()]) <= most
    return found


def run(code: str, **names: Any) -> dict[str, Any]:
    """Run a snippet in a module's namespace with these names."""
    namespace = {"__name__": "snippet", "Secret": Secret, "current_job": current_job, "Dibs": Dibs, **names}
    exec(compile(code, "docs/hooks.md", "exec"), namespace)
    return namespace


def test_sentry_is_told_of_the_final_failure(db: Database) -> None:
    """One alert for a job that was tried three times, with its exception; in fewer than ten lines."""
    import sentry_sdk
    from sentry_sdk.envelope import Envelope
    from sentry_sdk.transport import Transport

    sent: list[Any] = []

    class Memory(Transport):
        def capture_envelope(self, envelope: Envelope) -> None:
            sent.append(envelope.get_event())

    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=Memory, traces_sample_rate=0)
    try:
        app = db.app()
        run(snippet("sentry_sdk", most=9), app=app)

        @app.task(name="fails", max_attempts=3, backoff=Backoff(first=0))
        def fails() -> None:
            raise LookupError("no such order")

        job = fails.enqueue()
        app.worker(burst=True).run()
        assert app.job(job.id).attempts == 3
    finally:
        sentry_sdk.get_client().close()
        sentry_sdk.init()
    (alert,) = [event for event in sent if event]
    assert alert["exception"]["values"][0]["type"] == "LookupError"
    assert alert["contexts"]["job"] == {"id": job.id, "task": "fails", "attempts": 3}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_one_trace_from_the_enqueue_to_the_run(db: Database, kind: str) -> None:
    """The run's span is a child of the span in which the job was enqueued, and has the task's exception."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    app = db.app()
    run(snippet("opentelemetry", most=9), app=app)
    tracer = trace.get_tracer("test")

    def inside() -> None:
        with tracer.start_as_current_span("inside"):
            raise LookupError("no such order")

    if kind == "sync":

        @app.task(name="fails", max_attempts=1)
        def fails() -> None:
            inside()
    else:

        @app.task(name="fails", max_attempts=1)
        async def afails() -> None:
            inside()

    with tracer.start_as_current_span("request"):
        app.tasks["fails"].enqueue()
    app.worker(burst=True).run()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request, ran, within = spans["request"], spans["fails"], spans["inside"]
    assert request.context is not None
    assert ran.context is not None
    assert ran.parent is not None
    assert within.parent is not None
    assert ran.context.trace_id == request.context.trace_id
    assert ran.parent.span_id == request.context.span_id
    assert within.parent.span_id == ran.context.span_id
    assert ran.events[0].attributes is not None
    assert ran.events[0].attributes["exception.message"] == "no such order"


def test_a_client_for_all_tasks(db: Database) -> None:
    """The lifespan's client is the task's state."""
    closed: list[str] = []

    class Client:
        async def get(self, path: str) -> str:
            return f"got {path}"

    @asynccontextmanager
    async def make_client() -> Any:
        yield Client()
        closed.append("closed")

    fetch = run(snippet("make_client"), url=db.url, make_client=make_client)["fetch"]
    job = fetch.enqueue("/orders")
    fetch.app.worker(burst=True).run()
    assert job.join(5) == "got /orders"
    assert closed == ["closed"]


def test_timing_and_translating(db: Database) -> None:
    """The hook around runs measures each, and turns an exception into a signal."""
    durations: list[Any] = []

    class RateLimited(Exception):
        retry_after = 30

    app = db.app()
    run(snippet("durations"), app=app, time=time, durations=durations, RateLimited=RateLimited, Release=Release)

    @app.task(name="calls")
    def calls() -> None:
        raise RateLimited

    job = calls.enqueue()
    app.worker(burst=True).run()
    record = app.job(job.id)
    assert (record.status, record.releases, record.attempts) == ("ready", 1, 0)
    assert [task for task, _ in durations] == ["calls"]


def test_the_small_ones(db: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """The request's id goes along, failures are printed, card numbers are not, secrets are."""
    request_id = ContextVar("request_id", default="r-1")
    app: Dibs = run(snippet("card number"), url=db.url, re=re)["app"]
    run(snippet("request_id"), app=app, request_id=request_id)
    run(snippet("tell_somebody"), app=app)
    login = run(snippet("password: Secret"), app=app)["login"]
    assert isinstance(login.app, Dibs)

    @app.task(name="pays", max_attempts=1)
    def pays() -> None:
        raise ValueError("card 1234123412341234")

    job = pays.enqueue()
    app.worker(burst=True).run()
    assert app.events.flush()
    assert app.job(job.id).meta == {"request_id": "r-1"}
    printed = capsys.readouterr().out
    assert printed.startswith(f"failed {job.id} pays")
    assert "ValueError: card (card number)" in printed


def test_the_page_names_every_event_and_all_that_it_says() -> None:
    """The table of events and the list of an event's fields are complete."""
    from dibs.events import NAMES

    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE)
    assert [name.strip("`") for row in rows for name in row.split(", ")] == list(NAMES)
    assert all(f"`{name}`" in PAGE for name in Event.__dataclass_fields__)
