"""Traces, the log, and the meters of the process."""

import logging

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from upwell.ground.ledger import TtlStore
from upwell.ground.trace import (
    LOG,
    MAX_SERIES,
    OTHER,
    SECONDS,
    Histogram,
    Meter,
    export_spans,
    log_to,
    present_trace_id,
    requested,
    span,
    trace_id_in,
)
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Hit, Memory
from upwell.surface.options import PipelineOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall
from upwell.web.routes import exposition, gauge, of_histogram, of_meter


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


async def test_the_span_of_a_surfacing_has_no_text(spans):
    memory = Memory(id="m1", text="the vault code is hidden", content_hash="h")
    recall = FakeRecall([Hit(memory=memory, score=0.9)])
    surfacer = Surfacer(recall, TtlStore(), PipelineOptions())
    await surfacer.surface(Cue(door="prompt", text="where is the vault code hidden?"))
    await surfacer.aclose()
    (finished,) = spans.get_finished_spans()
    assert finished.name == "upwell.surface"
    assert dict(finished.attributes) == {"door": "prompt", "outcome": "surfaced 1"}
    assert finished.status.status_code is StatusCode.OK


async def test_a_search_that_fails_gives_its_span_an_error(spans):
    recall = FakeRecall(error=RuntimeError("the vault is open"))
    surfacer = Surfacer(recall, TtlStore(), PipelineOptions())
    await surfacer.surface(Cue(door="prompt", text="where is the vault code hidden?"))
    await surfacer.aclose()
    (finished,) = spans.get_finished_spans()
    assert finished.attributes["outcome"] == "skip fault"
    assert finished.status.status_code is StatusCode.ERROR
    assert "vault" not in finished.to_json()


def test_an_exception_leaves_its_class_only(spans):
    with pytest.raises(ValueError, match="secret"), span("outer"):
        raise ValueError("a secret")
    (finished,) = spans.get_finished_spans()
    assert finished.attributes["outcome"] == "ValueError"
    assert "secret" not in finished.to_json()


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def test_what_follows_a_call_joins_its_trace(spans):
    with requested(PARENT), span("call", trace_id=present_trace_id()), span("inside"):
        pass
    with span("later", trace_id=TRACE):
        pass
    with requested(PARENT.replace("4bf", "aaa")), span("elsewhere", trace_id=TRACE):
        pass
    inside, call, later, elsewhere = spans.get_finished_spans()
    assert {f"{each.context.trace_id:032x}" for each in spans.get_finished_spans()} == {TRACE}
    assert f"{call.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert inside.parent.span_id == call.context.span_id
    assert later.parent is not None
    (link,) = elsewhere.links
    assert f"{link.context.trace_id:032x}".startswith("aaa")


@pytest.mark.parametrize(
    "header",
    ["", "x", f"ff-{TRACE}-00f067aa0ba902b7-01", f"00-{'0' * 32}-00f067aa0ba902b7-01",
     f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-00f067aa0ba902b7-01", PARENT + "-x"],
)  # fmt: skip
def test_an_invalid_traceparent_is_ignored(header):
    assert trace_id_in(header) == ""
    with requested(header):
        assert present_trace_id() != TRACE


def test_nothing_is_exported_unless_an_endpoint_is_named():
    assert export_spans({}) is False


def test_the_log_is_private_and_an_unwritable_folder_only_loses_the_log(tmp_path):
    try:
        log_to(tmp_path / "log")
        LOG.info("hello")
        assert "hello" in (tmp_path / "log" / "upwell.log").read_text()
        assert (tmp_path / "log" / "upwell.log").stat().st_mode & 0o077 == 0
        (tmp_path / "file").write_text("")
        log_to(tmp_path / "file")
        LOG.info("nobody hears")
    finally:
        for handler in list(LOG.handlers):
            LOG.removeHandler(handler)
            handler.close()
        LOG.addHandler(logging.NullHandler())


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
