"""Spans contain outcomes and never content."""

import contextlib
import logging

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from upwell.app.learning import Traces
from upwell.ground.errors import StoreUnwritable
from upwell.ground.trace import LOG, export_spans, log_to
from upwell.ground.ttl_store import MemoryTtlStore
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Hit, Memory
from upwell.ground.types.surfacing import Feedback, Rating
from upwell.surface.options import Options
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


async def test_the_span_of_a_surfacing_has_no_text(spans):
    memory = Memory(id="m1", text="the vault code is hidden", content_hash="h")
    recall = FakeRecall([Hit(memory=memory, score=0.9)])
    surfacer = Surfacer(recall, MemoryTtlStore(), Options())
    await surfacer.surface(Cue(door="prompt", text="where is the vault code hidden?"))
    await surfacer.aclose()
    (span,) = spans.get_finished_spans()
    assert span.name == "upwell.surface"
    assert dict(span.attributes) == {"door": "prompt", "outcome": "surfaced 1"}


async def test_later_spans_of_a_call_carry_its_trace(spans):
    recall = FakeRecall([Hit(memory=Memory(id="m1", text="the vault is hidden"), score=0.9)])
    surfacer = Surfacer(recall, MemoryTtlStore(), Options())
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    cue = Cue(door="prompt", text="where is the vault hidden?", trace_id=trace_id)
    outcome = await surfacer.surface(cue)
    with contextlib.suppress(StoreUnwritable):
        await surfacer.rate(Feedback(surfacing_id=outcome.id, rating=Rating.HELPFUL))
    await surfacer.aclose()
    traces = Traces()
    traces.note(["k1"], trace_id)
    traces.read_on("k1")
    traces.read_on("k2")
    result = {(span.name, span.attributes["trace_id"]) for span in spans.get_finished_spans()}
    assert result == {
        ("upwell.surface", trace_id),
        ("upwell.feedback", trace_id),
        ("upwell.read_on", trace_id),
        ("upwell.read_on", ""),
    }
    attributes = str([dict(span.attributes) for span in spans.get_finished_spans()])
    assert "vault" not in attributes


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
