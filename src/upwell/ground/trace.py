"""Follow a call through upwell: the counts for metrics, trace ids, spans, and the log.

Spans contain names, sizes and outcomes, never content. Without an OpenTelemetry SDK, they cost
almost nothing. Labels of metrics are names from the configuration or from fixed lists, never
tenants, principals, sessions or tools, so the metrics are few and reveal nothing about a tenant.
"""

import contextlib
import logging
import re
import secrets
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from upwell.ground.errors import UpwellError, extra_hint
from upwell.ground.secrets.redact import redact

MAX_SERIES = 200
"""The maximum number of label combinations per meter. All others are counted under `OTHER`."""
OTHER = "other"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""The upper bounds of a histogram's buckets."""


class Meter:
    """A counter for each combination of label values. It only goes up."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._totals: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, *values: str, by: float = 1.0) -> None:
        key = _bounded(values, self._totals)
        self._totals[key] = self._totals.get(key, 0.0) + by

    @property
    def totals(self) -> Mapping[tuple[str, ...], float]:
        return dict(self._totals)


class Histogram:
    """Durations in seconds, for each combination of label values."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, seconds: float, *values: str) -> None:
        key = _bounded(values, self._sums)
        counts = self._counts.setdefault(key, [0] * (len(SECONDS) + 1))
        counts[bisect_left(SECONDS, seconds)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    @property
    def totals(self) -> Mapping[tuple[str, ...], tuple[Sequence[int], float]]:
        """How many durations fell into each bucket (the last has no upper bound), and their
        sum."""
        return {key: (tuple(counts), self._sums[key]) for key, counts in self._counts.items()}


def _bounded(values: tuple[str, ...], known: Mapping[tuple[str, ...], object]) -> tuple[str, ...]:
    return values if values in known or len(known) < MAX_SERIES else (OTHER,) * len(values)


CALLS = Meter(
    "upwell_calls_total", "Tool calls to servers, by server and outcome", "server", "outcome"
)
CALL_SECONDS = Histogram(
    "upwell_call_seconds", "Duration of tool calls, including fitting and memories", "server"
)
DECISIONS = Meter(
    "upwell_decisions_total",
    "Decisions, by door and outcome: surfaced, or the reason for surfacing nothing",
    "door",
    "outcome",
)
DECISION_SECONDS = Histogram("upwell_decision_seconds", "Duration of decisions, by door", "door")
MEMORIES = Meter("upwell_memories_delivered_total", "Memories that agents received")
TOKENS_SAVED = Meter("upwell_tokens_saved_total", "Tokens left out by fitting, by server", "server")
DENIALS = Meter("upwell_denials_total", "Requests refused at the door, by HTTP status", "status")
LOSSES = Meter(
    "upwell_database_losses_total", "How often the connection to the team's database was lost"
)

METERS = (CALLS, DECISIONS, MEMORIES, TOKENS_SAVED, DENIALS, LOSSES)
HISTOGRAMS = (CALL_SECONDS, DECISION_SECONDS)


LOG = logging.getLogger("upwell")
LOG.addHandler(logging.NullHandler())

_MAX_LOG_BYTES = 2_000_000
_LOG_FILES = 3
_MAX_TRACES = 2_000
_LAST_SECONDS = 0.5
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})"
)
"""The W3C Trace Context header, version 00: version, trace id, span id, flags."""


def new_trace_id() -> str:
    """Return 32 random hex digits, as in W3C Trace Context."""
    return secrets.token_hex(16)


def contained(action: str) -> AbstractContextManager[None, bool]:
    """Log an exception raised in the block instead of propagating it. upwell's own errors are
    logged on one line, others with a traceback. A cancellation is not caught."""
    return _Contained(action)


class _Contained:
    # A class is three times as fast as a generator, and every event enters several of these blocks.

    def __init__(self, action: str) -> None:
        self._action = action

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, UpwellError):
            LOG.warning("%s failed: %s", self._action, error)
        elif isinstance(error, Exception):
            LOG.error("%s failed", self._action, exc_info=error)
        return isinstance(error, Exception)


class Spans:
    """The last span of each trace, so that work done after a call joins the call's trace. `close`
    shuts down the exporter."""

    def __init__(self) -> None:
        self._last: OrderedDict[int, int] = OrderedDict()
        self.close: Callable[[], None] | None = None

    def note(self, trace_id: int, span_id: int) -> None:
        self._last[trace_id] = span_id
        self._last.move_to_end(trace_id)
        if len(self._last) > _MAX_TRACES:
            self._last.popitem(last=False)

    def last_of(self, trace_id: int) -> int | None:
        return self._last.get(trace_id)


_SPANS = Spans()
_REQUEST: ContextVar[str] = ContextVar("traceparent", default="")
"""The W3C `traceparent` of the client's current request, or ""."""
_REQUESTED_ID: ContextVar[int] = ContextVar("trace_id", default=0)
"""The trace id that the next span gets if it has no parent, or 0."""


def trace_id_in(traceparent: str) -> str:
    """Return the trace id in a W3C `traceparent`, or "" if the header is not valid."""
    match = _TRACEPARENT.fullmatch(traceparent)
    return match[1] if match else ""


@contextmanager
def requested(traceparent: str) -> Iterator[None]:
    """Make the spans of this block join the trace of a client's request. A span whose parent
    belongs to another trace gets a link to the request. An invalid `traceparent` has no effect."""
    token = _REQUEST.set(traceparent if trace_id_in(traceparent) else _REQUEST.get())
    try:
        yield
    finally:
        _REQUEST.reset(token)


def present_trace_id() -> str:
    """Return the trace id of the current span, or else of the client's request, or else a new
    one."""
    from opentelemetry import trace

    present = trace.get_current_span().get_span_context()
    if present.is_valid:
        return trace.format_trace_id(present.trace_id)
    return trace_id_in(_REQUEST.get()) or new_trace_id()


def is_tracing() -> bool:
    """Return whether spans are exported."""
    from opentelemetry import trace

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def span(
    name: str, *, trace_id: str = "", **attributes: str | int | float | bool
) -> AbstractContextManager[Any]:
    """Open a span called `name`.

    The parent of the span is the first of these that exists and belongs to the trace `trace_id`:
    the current span, the client's request, the last span of the trace. Without a `trace_id`, any
    current span or request is accepted. A span without a parent starts a trace.

    Attributes must contain sizes and outcomes, never content. After an exception, the span's
    outcome is the name of the exception's class.
    """
    from opentelemetry import trace

    if not is_tracing():
        return nullcontext(trace.INVALID_SPAN)
    if trace_id:
        attributes["trace_id"] = trace_id
    return _recording(trace.get_tracer("upwell"), name, trace_id, attributes)


def conclude(current: Any, outcome: str, *, failed: bool = False) -> None:
    """Set a span's outcome and status."""
    from opentelemetry.trace import StatusCode

    current.set_attribute("outcome", outcome)
    current.set_status(StatusCode.ERROR if failed else StatusCode.OK)


@contextmanager
def _recording(
    tracer: Any, name: str, trace_id: str, attributes: Mapping[str, Any]
) -> Iterator[Any]:
    context, requested_id = _place(trace_id)
    token = _REQUESTED_ID.set(requested_id)
    try:
        opened = tracer.start_span(
            name, context=context, attributes=attributes, links=_links(context)
        )
    finally:
        _REQUESTED_ID.reset(token)
    from opentelemetry import trace

    own = opened.get_span_context()
    _SPANS.note(own.trace_id, own.span_id)
    try:
        with trace.use_span(opened, record_exception=False, set_status_on_exception=False):
            yield opened
    except BaseException as error:
        conclude(opened, type(error).__name__, failed=isinstance(error, Exception))
        raise
    finally:
        opened.end()


def _place(trace_id: str) -> tuple[Any, int]:
    """Return the context of a new span (None for the current one), and the trace id to use if the
    span has no parent."""
    from opentelemetry import context, trace

    present = trace.get_current_span().get_span_context()
    number = int(trace_id, 16) if _TRACE_ID.fullmatch(trace_id) else 0
    if present.is_valid and number in (0, present.trace_id):
        return None, 0
    request = _remote(_REQUEST.get())
    if request is not None and number in (0, request.trace_id):
        parent = request
    elif number and (span_id := _SPANS.last_of(number)):
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        parent = trace.SpanContext(number, span_id, is_remote=True, trace_flags=flags)
    else:
        return context.Context(), number
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), context.Context()), 0


def _links(context: Any) -> list[Any]:
    from opentelemetry import trace

    request = _remote(_REQUEST.get())
    parent = trace.get_current_span(context).get_span_context()
    if request is None or not parent.is_valid or parent.trace_id == request.trace_id:
        return []
    return [trace.Link(request)]


def _remote(traceparent: str) -> Any:
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    from opentelemetry import trace

    numbers = (int(group, 16) for group in match.groups())
    trace_id, span_id, flags = numbers
    return trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))


def export_spans(environment: Mapping[str, str], version: str = "") -> bool:
    """Send spans to the OTLP endpoint in `OTEL_EXPORTER_OTLP_ENDPOINT` or
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`. The service name is `upwell`, unless `OTEL_SERVICE_NAME`
    or `OTEL_RESOURCE_ATTRIBUTES` sets another.

    Returns False if there is no endpoint, or if the `upwell[otel]` extra is missing.
    """
    if not any(environment.get(name) for name in _ENDPOINTS):
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ImportError:
        LOG.warning("spans are not sent: the extra is missing; %s", extra_hint("otel"))
        return False
    from opentelemetry import trace

    class RequestedIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return _REQUESTED_ID.get() or super().generate_trace_id()

    # The SDK warns about an unreachable endpoint. This belongs in upwell's log, not on stderr.
    sdk = logging.getLogger("opentelemetry")
    sdk.parent = LOG
    resource = Resource({"service.name": "upwell", "service.version": version})
    names_service = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(
        id_generator=RequestedIds(),
        resource=resource.merge(Resource.create())
        if names_service
        else Resource.create().merge(resource),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _SPANS.close = provider.shutdown
    return True


def send_last_spans() -> None:
    """Send the pending spans. Waits at most half a second."""
    close, _SPANS.close = _SPANS.close, None
    if close is not None:
        sending = threading.Thread(target=close, daemon=True)
        sending.start()
        sending.join(_LAST_SECONDS)


def _masked(record: logging.LogRecord) -> bool:
    """Mask the secrets in a log record. As a log filter, this returns True to keep the record."""
    record.msg, record.args = redact(record.getMessage())[0], None
    return True


class _Quiet(RotatingFileHandler):
    """Drops a line that cannot be written, for example because the disk is full, instead of
    printing a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:
        del record

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


def log_to(folder: Path) -> None:
    """Write the log to three files of up to 2 MB in `folder`, readable only by the user. asyncio's
    log goes there too, because it may contain secrets, which would not be masked on stderr.

    If the folder cannot be written to, nothing is logged.
    """
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    for old in list(LOG.handlers):
        LOG.removeHandler(old)
        old.close()
    handler: logging.Handler
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "upwell.log"
        path.touch(mode=0o600)
        handler = _Quiet(
            path, maxBytes=_MAX_LOG_BYTES, backupCount=_LOG_FILES - 1, encoding="utf-8"
        )
    except OSError:
        handler = logging.NullHandler()
    handler.addFilter(_masked)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    LOG.addHandler(handler)
    loop_log = logging.getLogger("asyncio")
    loop_log.handlers, loop_log.propagate = [handler], False
