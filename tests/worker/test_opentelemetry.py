"""OpenTelemetry, with its own SDK: a trace from the enqueue to each run, and metrics of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from dibs import Backoff, Dibs, Release, Secret
from dibs.contrib.opentelemetry import instrument


class Seen:
    """An app that is instrumented, and what its SDK was given."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = Dibs(url)
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers, meters = TracerProvider(), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        for _ in range(2):
            instrument(self.app, tracer_provider=self.tracers, meter_provider=meters, **settings)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def points(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'dibs.db'}"


def parents(span: ReadableSpan) -> tuple[int, int | None]:
    assert span.context is not None
    return span.context.trace_id, span.parent.span_id if span.parent is not None else None


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_one_trace(url: str, kind: str) -> None:
    """The enqueue is a producer span within the request's, each attempt a consumer span below it, and what the task does is
    below that; `traceparent` is in the job. An exception is recorded without the job's secrets."""
    seen = Seen(url)
    tracer = trace.get_tracer("test", tracer_provider=seen.tracers)

    def work(pin: str) -> None:
        with tracer.start_as_current_span("inside", record_exception=False):
            raise LookupError(f"no order with {pin}")

    if kind == "sync":

        @seen.app.task(name="t", queue="mail", max_attempts=2, backoff=Backoff(first=0))
        def t(pin: Secret[str]) -> None:
            work(pin)
    else:

        @seen.app.task(name="t", queue="mail", max_attempts=2, backoff=Backoff(first=0))
        async def at(pin: Secret[str]) -> None:
            work(pin)

    with tracer.start_as_current_span("request"):
        job = seen.app.tasks["t"].enqueue(pin="hunter2")
    seen.app.worker(burst=True).run()
    (request,), (enqueue,) = seen.spans("request"), seen.spans("enqueue mail")
    first, second = seen.spans("process mail")
    assert request.context is not None
    assert enqueue.context is not None
    assert first.context is not None
    assert (enqueue.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parents(enqueue) == (request.context.trace_id, request.context.span_id)
    assert parents(first) == parents(second) == (request.context.trace_id, enqueue.context.span_id)
    assert parents(seen.spans("inside")[0]) == (request.context.trace_id, first.context.span_id)
    assert f"{request.context.trace_id:032x}" in seen.app.job(job.id).meta["traceparent"]
    assert first.attributes is not None
    assert first.attributes["messaging.system"] == "dibs"
    assert first.attributes["messaging.message.id"] == str(job.id)
    assert [span.attributes["dibs.job.attempt"] for span in (first, second) if span.attributes] == [1, 2]
    (exception,) = first.events
    assert first.status.status_code is StatusCode.ERROR
    assert exception.attributes is not None
    assert exception.attributes["exception.message"] == "no order with •••"
    assert "hunter2" not in f"{first.to_json()}{second.to_json()}{enqueue.to_json()}"
    seen.app.close()


def test_links_and_metrics(url: str) -> None:
    """With links each run begins a trace that is linked to the enqueue's. A release is no error. What was enqueued, run, and
    how long it took is measured, and with depths what the database knows."""
    seen = Seen(url, links=True, depths=True)

    @seen.app.task(name="again", queue="mail")
    def again() -> None:
        raise Release("later", delay=3600)

    again.enqueue()
    seen.app.worker(burst=True).run()
    (enqueue,), (run,) = seen.spans("enqueue mail"), seen.spans("process mail")
    assert run.parent is None
    assert enqueue.context is not None
    assert [link.context.span_id for link in run.links] == [enqueue.context.span_id]
    assert (run.status.status_code, list(run.events)) == (StatusCode.UNSET, [])
    points = seen.points()
    assert points["messaging.client.sent.messages"][0].value == 1
    assert points["messaging.client.consumed.messages"][0].value == 1
    (took,) = points["messaging.process.duration"]
    assert (took.count, took.attributes["messaging.destination.name"]) == (1, "mail")
    assert "error.type" not in took.attributes
    depths = {tuple(sorted(point.attributes.items())): point.value for point in points["dibs.jobs"]}
    assert depths[("queue", "mail"), ("status", "scheduled")] == 1
    seen.app.close()
