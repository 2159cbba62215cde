"""OpenTelemetry: one trace from the enqueue to each run, and metrics of both. The extra `dibs[otel]`.

    from dibs.contrib.opentelemetry import instrument

    instrument(app)

Names follow the semantic conventions for messaging. Where spans and metrics go is up to the SDK that your program sets
up; without one all of this does nothing.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakSet

from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Link, SpanKind, StatusCode

import dibs
from dibs.app import Dibs
from dibs.depths import Depths
from dibs.errors import Cancel, Release, Signal
from dibs.hooks import Draft
from dibs.metrics import Buckets
from dibs.running import CurrentJob
from dibs.secrets import scrubbed
from dibs.worker.scrubbing import scrub_of

_SYSTEM = "dibs"

_instrumented: WeakSet[Dibs] = WeakSet()


def instrument(
    app: Dibs,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    links: bool = False,
    depths: bool = False,
) -> None:
    """Have an app's enqueues and runs traced and measured, from now on, in this process. Saying it twice is no error.

    Call it where the app is made, so that it holds in web processes, in workers and in the processes of their tasks.

    - An enqueue gives a producer span, whose context is stored in the job's `meta` (`traceparent`). A run gives a consumer
      span, its child: one trace, however many attempts. With `links` each run begins a trace of its own that is linked to
      the enqueue's.
    - An exception is recorded with its secrets taken out, as in the job's errors. `Release` and `Cancel` are none.
    - Metrics: `messaging.client.sent.messages`, `messaging.client.consumed.messages`, `messaging.process.duration`.
    - With `depths`, gauges of what the database knows, such as `dibs.jobs` by queue and status: for one process, since all
      would say the same.

    Without providers the global ones are used.
    """
    if app in _instrumented:
        return
    _instrumented.add(app)
    tracer = trace.get_tracer("dibs", dibs.__version__, tracer_provider)
    meter = metrics.get_meter("dibs", dibs.__version__, meter_provider)
    sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued.")
    consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Runs that began.")
    duration = meter.create_histogram("messaging.process.duration", "s", "How long runs took.")

    @app.on_enqueue
    def carry_trace(draft: Draft) -> None:
        about = _about("enqueue", draft.queue, draft.task)
        with tracer.start_as_current_span(
            f"enqueue {draft.queue}", kind=SpanKind.PRODUCER, attributes={**about, "messaging.operation.type": "send"}
        ):
            propagate.inject(draft.meta)
        sent.add(1, about)

    @app.around
    def traced(job: CurrentJob) -> Iterator[None]:
        about = _about("process", job.queue, job.task)
        consumed.add(1, about)
        context = propagate.extract(job.meta)
        origin = trace.get_current_span(context).get_span_context()
        began = time.monotonic()
        with tracer.start_as_current_span(
            f"process {job.queue}",
            context=None if links else context,
            kind=SpanKind.CONSUMER,
            links=[Link(origin)] if links and origin.is_valid else None,
            attributes={
                **about,
                "messaging.operation.type": "process",
                "messaging.message.id": str(job.id),
                "dibs.job.attempt": job.attempts,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                if not isinstance(error, Release | Cancel):
                    kind = type(error).__qualname__
                    about = {**about, "error.type": kind}
                    text, stack = _scrubbed(app, job, error)
                    span.set_attribute("error.type", kind)
                    span.add_event(
                        "exception",
                        {"exception.type": kind, "exception.message": text, "exception.stacktrace": stack},
                    )
                    span.set_status(StatusCode.ERROR, text)
                raise
            finally:
                duration.record(time.monotonic() - began, about)

    if depths:
        _observe(app, meter)


def _about(operation: str, queue: str, task: str) -> dict[str, str]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": queue,
        "dibs.task": task,
    }


def _scrubbed(app: Dibs, job: CurrentJob, error: BaseException) -> tuple[str, str]:
    """Return what an exception says, and its traceback, without the secrets of the job."""
    task = app.task_named(job.task)
    scrub = None if task is None else scrub_of(task, job._claim)
    stack = "".join(traceback.format_exception(error)) if not isinstance(error, Signal) else ""
    if scrub is None:
        return scrubbed(str(error), app.scrub), scrubbed(stack, app.scrub)
    return scrub(str(error)), scrub(stack)


def _observe(app: Dibs, meter: metrics.Meter) -> None:
    measured = Depths(app)
    named = {
        "dibs_jobs": ("dibs.jobs", "{job}"),
        "dibs_jobs_ended": ("dibs.jobs.ended", "{job}"),
        "dibs_oldest_ready_seconds": ("dibs.oldest_ready", "s"),
        "dibs_leases_past": ("dibs.leases.past", "{lease}"),
        "dibs_workers": ("dibs.workers", "{worker}"),
        "dibs_duplicates": ("dibs.duplicates", "{job}"),
    }

    def observer(family: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            for each in measured.families():
                for sample in each.samples if each.name == family else ():
                    if not isinstance(sample.value, Buckets):
                        labels: dict[str, Any] = dict(sample.labels)
                        yield Observation(sample.value, labels)

        return observe

    for family, (name, unit) in named.items():
        meter.create_observable_gauge(name, [observer(family)], unit)
