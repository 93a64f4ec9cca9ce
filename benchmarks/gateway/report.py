"""Formats the figures as tables, and checks them against the goals."""

from collections.abc import Mapping
from dataclasses import dataclass

CAP_MB = 64_000_000 / (1 << 20)
HEADS = {
    "call_cpu_ms": "small call, CPU ms",
    "call_first_cpu_ms": "of this, in the process that the client started",
    "call_helpers_cpu_ms": "and in the daemon",
    "call_p50_ms": "small call, p50 ms",
    "call_p95_ms": "small call, p95 ms",
    "at_once_per_s": "32 in flight, calls a second",
    "at_once_cpu_ms": "32 in flight, CPU ms a call",
    "official_at_once_per_s": "32 in flight, SDK's server, calls a second",
    "official_at_once_cpu_ms": "32 in flight, SDK's server, CPU ms a call",
    "kept_cpu_ms": "answer kept, CPU ms",
    "http_cpu_ms": "HTTP in front, CPU ms",
    "http_both_cpu_ms": "HTTP on both sides, CPU ms",
    "passed_1_mb_cpu_ms": "1 MB passed on, CPU ms",
    "passed_1_mb_p50_ms": "1 MB passed on, p50 ms",
    "passed_10_mb_cpu_ms": "10 MB passed on, CPU ms",
    "passed_10_mb_p50_ms": "10 MB passed on, p50 ms",
    "fitted_1_mb_cpu_ms": "1 MB shortened, CPU ms",
    "fitted_1_mb_p50_ms": "1 MB shortened, p50 ms",
    "beside_p50_ms": "small call beside another server's 10 MB, p50 ms",
    "beside_p95_ms": "small call beside another server's 10 MB, p95 ms",
    "beside_max_ms": "small call beside another server's 10 MB, longest ms",
    "start_ms": "start to `initialize`, ms",
    "start_cpu_ms": "its CPU ms",
    "ready_ms": "start to tools listed, ms",
    "rss_mb": "RSS MB",
    "rss_after_mb": "RSS MB after many calls",
    "flood_s": "1 GB: seconds to the error",
    "flood_peak_mb": "1 GB: most RSS MB",
}
Table = Mapping[str, Mapping[str, float]]
"""Figures by contender and name."""


@dataclass(frozen=True)
class Goal:
    what: str
    value: float
    limit: float
    least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.least else self.value <= self.limit


def goals(table: Table) -> list[Goal]:
    """Each goal whose figures were measured."""
    direct, upwell = table["direct"], table["upwell"]
    collected: list[Goal] = []
    if "call_cpu_ms" in upwell:
        added = upwell["call_cpu_ms"] - direct["call_cpu_ms"]
        collected.append(Goal("CPU added to a small call on stdio ≤ 2 ms", added, 2.0))
        collected.append(Goal("RSS ≤ 80 MB", upwell["rss_mb"], 80.0))
    if "official_at_once_per_s" in upwell:
        share = upwell["official_at_once_per_s"] / direct["official_at_once_per_s"]
        kind = "throughput of 32 in flight, the SDK's server behind ≥ 0.6 × direct"
        collected.append(Goal(kind, share, 0.6, least=True))
    if "http_cpu_ms" in upwell and "call_cpu_ms" in direct:
        added = upwell["http_cpu_ms"] - direct["call_cpu_ms"]
        collected.append(Goal("CPU added by HTTP in front ≤ 6 ms", added, 6.0))
        added = upwell["http_both_cpu_ms"] - direct["http_both_cpu_ms"]
        collected.append(Goal("CPU added with HTTP on both sides ≤ 6 ms", added, 6.0))
    if "kept_cpu_ms" in upwell and "call_cpu_ms" in upwell:
        share = upwell["kept_cpu_ms"] / upwell["call_cpu_ms"]
        collected.append(Goal("an answer that is kept, as a share of the call ≤ 1", share, 1.0))
    if "start_ms" in upwell and "start_ms" in table.get("memtomem-stm", {}):
        share = upwell["start_ms"] / table["memtomem-stm"]["start_ms"]
        collected.append(Goal("start to `initialize` ≤ 0.2 × memtomem-stm", share, 0.2))
    if "flood_s" in upwell:
        collected.append(Goal("1 GB: an error within 5 s", upwell["flood_s"], 5.0))
        limit = CAP_MB + 100
        collected.append(Goal("1 GB: RSS ≤ the cap + 100 MB", upwell["flood_peak_mb"], limit))
    return collected + _goals_of_wrapping(direct, table.get("upwell wrap", {}))


def _goals_of_wrapping(direct: Mapping[str, float], wrap: Mapping[str, float]) -> list[Goal]:
    collected: list[Goal] = []
    if "call_first_cpu_ms" in wrap:
        relay = wrap["call_first_cpu_ms"]
        collected.append(Goal("wrapped: CPU of the relay for a small call ≤ 0.5 ms", relay, 0.5))
        collected.append(Goal("wrapped: RSS of the relay ≤ 20 MB", wrap["rss_mb"], 20.0))
    if "start_ms" in wrap:
        for key, what in (("start_ms", "the `initialize` reply"), ("ready_ms", "the tools")):
            added = wrap[key] - direct[key]
            collected.append(Goal(f"wrapped: time added to {what} ≤ 60 ms", added, 60.0))
    return collected


def markdown(table: Table) -> str:
    """A row for each figure, a column for each contender."""
    names = list(table)
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for key, head in HEADS.items():
        if any(key in table[name] for name in names):
            cells = [_shown(table[name].get(key)) for name in names]
            lines.append(f"| {head} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 20 else f"{value:,.0f}"
