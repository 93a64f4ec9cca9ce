"""Metrics in Prometheus' text format 0.0.4."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `samples` maps labels to values."""

    name: str
    help: str
    kind: str = "counter"
    samples: Mapping[tuple[tuple[str, str], ...], float] = field(default_factory=dict)


def hook_metric(outcomes: Mapping[tuple[str, str], int]) -> Metric:
    """Hook events by host and outcome."""
    samples: dict[tuple[tuple[str, str], ...], float] = {
        (("host", host), ("outcome", outcome)): float(count)
        for (host, outcome), count in outcomes.items()
    }
    return Metric("upwell_hook_events_total", "Hook events since the start", samples=samples)


def gauge(name: str, help: str, value: float) -> Metric:
    """A metric that goes up and down."""
    return Metric(name, help, "gauge", {(): value})


def exposition(metrics: Iterable[Metric]) -> str:
    """The metrics in Prometheus' text format."""
    lines: list[str] = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [
            f"{metric.name}{_labels(labels)} {value:g}"
            for labels, value in sorted(metric.samples.items())
        ]
    return "\n".join(lines) + "\n"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
