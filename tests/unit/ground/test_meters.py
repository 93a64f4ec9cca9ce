"""The meters of the process."""

import pytest

from upwell.ground.trace import MAX_SERIES, OTHER, SECONDS, Histogram, Meter
from upwell.web.routes import exposition, gauge, of_histogram, of_meter


def test_a_meter_without_labels_begins_at_zero() -> None:
    assert exposition([of_meter(Meter("m_total", "M"))]).splitlines()[-1] == "m_total 0"


def test_label_values_are_limited() -> None:
    meter, histogram = Meter("m_total", "M", "server"), Histogram("h", "H", "server")
    for number in range(MAX_SERIES + 50):
        meter.add(f"s{number}")
        histogram.observe(0.1, f"s{number}")
    assert len(meter.totals) == len(histogram.totals) == MAX_SERIES + 1
    assert meter.totals[OTHER,] == 50
    assert sum(histogram.totals[OTHER,][0]) == 50


def test_buckets_are_cumulative_and_include_their_bound() -> None:
    histogram = Histogram("h", "H", "door")
    for seconds in (0.0, 0.001, 0.3, 1_000.0):
        histogram.observe(seconds, "tool")
    lines = exposition([of_histogram(histogram)]).splitlines()
    assert lines[1] == "# TYPE h histogram"
    assert 'h_bucket{door="tool",le="0.001"} 2' in lines
    assert 'h_bucket{door="tool",le="0.25"} 2' in lines
    assert 'h_bucket{door="tool",le="0.5"} 3' in lines
    assert 'h_bucket{door="tool",le="+Inf"} 4' in lines
    assert 'h_count{door="tool"} 4' in lines
    assert len([line for line in lines if "_bucket" in line]) == len(SECONDS) + 1
    total = next(line for line in lines if line.startswith("h_sum"))
    assert float(total.rpartition(" ")[2]) == pytest.approx(1_000.301)


def test_large_numbers_stay_exact() -> None:
    assert exposition([gauge("g", "G", 123_456_789)]).splitlines()[-1] == "g 123456789"
