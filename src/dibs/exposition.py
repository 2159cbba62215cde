"""Metrics in the text format of Prometheus, written by its own library: the extra `dibs[prometheus]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dibs.errors import ConfigurationError
from dibs.metrics import Buckets, Family

#: As the text format says of itself.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Collector:
    """Gives what `read` answers to a registry of the Prometheus library, at each scrape."""

    def __init__(self, read: Callable[[], Sequence[Family]]) -> None:
        """Raises ConfigurationError where the library is not installed."""
        require()
        self._read = read

    def collect(self) -> Iterable[Any]:
        return [_converted(family) for family in self._read()]

    def describe(self) -> Iterable[Any]:
        """Nothing is read when it is registered."""
        return []


def exposition(families: Sequence[Family]) -> bytes:
    """Return metrics as a scrape wants them. Raises ConfigurationError where the library is not installed."""
    require()
    from prometheus_client import generate_latest

    return generate_latest(Collector(lambda: families))  # it wants no more of a registry


def measure(read: Callable[[], Sequence[Family]]) -> Callable[[], tuple[bytes, str]]:
    """Return what answers a scrape with what `read` answers then, and of which kind that is."""
    return lambda: (exposition(read()), CONTENT_TYPE)


def require() -> None:
    """Raise ConfigurationError where the library is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "metrics for Prometheus need its library: pip install 'dibs[prometheus]'; `dibs metrics --json` does without"
        ) from None


def _converted(family: Family) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    names = sorted({name for sample in family.samples for name in sample.labels})
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=names)
        for sample in family.samples:
            assert isinstance(sample.value, Buckets)
            bounds = [*map(str, sample.value.bounds), "+Inf"]
            values = [sample.labels.get(name, "") for name in names]
            histogram.add_metric(values, list(zip(bounds, sample.value.at_most, strict=True)), sample.value.sum)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    numbers = kind(family.name, family.help, labels=names)
    for sample in family.samples:
        assert not isinstance(sample.value, Buckets)
        numbers.add_metric([sample.labels.get(name, "") for name in names], sample.value)
    return numbers
