"""Spans say what happened, never what was said."""

import contextlib
import logging

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from upwell.app.learning import Traces
from upwell.ground.errors import StoreUnwritable
from upwell.ground.shelf import MemoryShelf
from upwell.ground.trace import LOG, export_spans, log_to
from upwell.ground.types import Cue, Feedback, Hit, Memory, Rating
from upwell.surface.engine import Surfacer
from upwell.surface.options import Options
from upwell.testing import FakeRecall


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


async def test_a_surfacing_is_a_span_without_its_text(spans):
    memory = Memory(id="m1", text="the vault code is hidden", content_hash="h")
    recall = FakeRecall([Hit(memory=memory, score=0.9)])
    surfacer = Surfacer(recall.search, MemoryShelf(), Options())
    await surfacer.surface(Cue(door="prompt", text="where is the vault code hidden?"))
    await surfacer.aclose()
    (span,) = spans.get_finished_spans()
    assert span.name == "upwell.surface"
    assert dict(span.attributes) == {"door": "prompt", "outcome": "surfaced 1"}


async def test_what_follows_a_call_carries_its_trace(spans):
    recall = FakeRecall([Hit(memory=Memory(id="m1", text="the vault is hidden"), score=0.9)])
    surfacer = Surfacer(recall.search, MemoryShelf(), Options())
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
    found = {(span.name, span.attributes["trace_id"]) for span in spans.get_finished_spans()}
    assert found == {
        ("upwell.surface", trace_id),
        ("upwell.feedback", trace_id),
        ("upwell.read_on", trace_id),
        ("upwell.read_on", ""),
    }
    said = str([dict(span.attributes) for span in spans.get_finished_spans()])
    assert "vault" not in said


def test_nothing_is_exported_unless_an_endpoint_is_named():
    assert export_spans({}) is False


def test_the_log_is_private_and_a_folder_that_cannot_be_written_costs_only_the_log(tmp_path):
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
