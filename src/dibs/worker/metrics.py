"""What only a worker knows, as metrics: of this process, since it began."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dibs.metrics import Family, Histogram, Sample
from dibs.worker.runs import Holdings
from dibs.worker.slots import Slots
from dibs.worker.tally import Tally


class WorkerMetrics:
    """Reads one worker. Of one that has not begun, or has ended, there is nothing to read."""

    def __init__(self) -> None:
        self._parts: tuple[Tally, Sequence[Slots], Holdings] | None = None
        self._timed = False
        self._dropped: Callable[[], int] = int

    def want_times(self) -> None:
        """Fill the histograms from now on."""
        self._timed = True
        if self._parts is not None:
            self._parts[0].timed = True

    def works(self, tally: Tally, slots: Sequence[Slots], holdings: Holdings, dropped: Callable[[], int]) -> None:
        """The worker works with these from now on. `dropped` answers how many events were."""
        tally.timed = self._timed
        self._parts, self._dropped = (tally, slots, holdings), dropped

    def families(self) -> list[Family]:
        """Return what this worker has counted until now."""
        if self._parts is None:
            return []
        tally, slots, holdings = self._parts
        return [
            _counter("dibs_claimed_total", "Jobs that were claimed, by queue.", _by("queue", tally.claims)),
            _counter(
                "dibs_runs_total",
                "Runs that ended, by queue, task and outcome: done, retried, failed, cancelled, released or lost.",
                [
                    Sample({"queue": queue, "task": task, "outcome": end}, number)
                    for (queue, task, end), number in tally.ends.copy().items()
                ],
            ),
            _counter(
                "dibs_polls_empty_total",
                "Polls that found nothing, by queue and reason.",
                [
                    Sample({"queue": queue, "reason": reason}, number)
                    for queue, reasons in tally.polls.copy().items()
                    for reason, number in reasons.copy().items()
                ],
            ),
            _counter("dibs_rows_skipped_total", "Ready rows that others held, by queue.", _by("queue", tally.skipped)),
            _counter(
                "dibs_leases_expired_total",
                "Claims whose lease was over and that this worker's upkeep took back, whoever held them, by queue.",
                _by("queue", tally.expired),
            ),
            _counter(
                "dibs_events_dropped_total",
                "Events whose handlers were too slow.",
                [Sample({}, self._dropped())],
            ),
            Family("dibs_claims_held", "gauge", "Jobs that this worker holds.", [Sample({}, len(holdings))]),
            _slots("dibs_slots", "Jobs that may run at a time, by kind.", slots, lambda each: each.size),
            _slots("dibs_slots_busy", "Slots that run a job, by kind.", slots, lambda each: len(each.busy)),
            _slots("dibs_slots_stuck", "Slots with code that ran out of time.", slots, lambda each: each.stuck),
            _histograms("dibs_wait_seconds", "From when a job was due until its run began.", "queue", tally.waited),
            _histograms("dibs_run_seconds", "How long runs took.", "task", tally.ran),
        ]


def _counter(name: str, text: str, samples: list[Sample]) -> Family:
    return Family(name, "counter", text, samples)


def _by(label: str, numbers: dict[str, int]) -> list[Sample]:
    return [Sample({label: name}, number) for name, number in numbers.copy().items()]


def _slots(name: str, text: str, slots: Sequence[Slots], number: Callable[[Slots], int]) -> Family:
    return Family(name, "gauge", text, [Sample({"kind": each.kind}, number(each)) for each in slots])


def _histograms(name: str, text: str, label: str, histograms: dict[str, Histogram]) -> Family:
    samples = [Sample({label: of}, histogram.read()) for of, histogram in histograms.copy().items()]
    return Family(name, "histogram", text, samples)
