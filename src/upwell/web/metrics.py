"""Metrics in Prometheus' text format 0.0.4."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from msgspec import Struct, field

from upwell.ground.meters import SECONDS, Histogram, Meter

Labels = tuple[tuple[str, str], ...]


class Metric(Struct, frozen=True):
    """One metric. `samples` maps labels to values. For a histogram, `buckets` maps labels to a
    pair: the cumulative count for each bound, and the sum of all values."""

    name: str
    help: str
    kind: str = "counter"
    samples: Mapping[Labels, float] = field(default_factory=dict)
    buckets: Mapping[Labels, tuple[Mapping[str, int], float]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in sorted(self.samples.items()):
            yield f"{self.name}{_labels(labels)} {_number(value)}"
        for labels, (bounds, total) in sorted(self.buckets.items()):
            for bound, count in bounds.items():
                yield f"{self.name}_bucket{_labels((*labels, ('le', bound)))} {count}"
            yield f"{self.name}_sum{_labels(labels)} {_number(total)}"
            yield f"{self.name}_count{_labels(labels)} {bounds['+Inf']}"


def hook_metric(outcomes: Mapping[tuple[str, str], int]) -> Metric:
    """Return the metric of hook events by host and outcome."""
    samples: dict[Labels, float] = {
        (("host", host), ("outcome", outcome)): float(count)
        for (host, outcome), count in outcomes.items()
    }
    return Metric("upwell_hook_events_total", "Hook events since the start", samples=samples)


def gauge(name: str, help: str, value: float) -> Metric:
    """Return a metric that goes up and down."""
    return Metric(name, help, "gauge", {(): float(value)})


def counted(name: str, help: str, value: float) -> Metric:
    """Return a metric that only increases."""
    return Metric(name, help, "counter", {(): value})


def of_meter(meter: Meter) -> Metric:
    samples = {_named(meter.labels, key): total for key, total in meter.totals.items()}
    return Metric(meter.name, meter.help, samples=samples)


def of_histogram(histogram: Histogram) -> Metric:
    bounds = [*(f"{bound:g}" for bound in SECONDS), "+Inf"]
    buckets = {
        _named(histogram.labels, key): (dict(zip(bounds, accumulate(counts), strict=True)), total)
        for key, (counts, total) in histogram.totals.items()
    }
    return Metric(histogram.name, histogram.help, "histogram", buckets=buckets)


def exposition(metrics: Iterable[Metric]) -> str:
    """Format the metrics as Prometheus text."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _named(names: tuple[str, ...], values: tuple[str, ...]) -> Labels:
    return tuple(zip(names, values, strict=True))


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
