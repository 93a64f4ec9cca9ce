"""Following one call through the house: trace ids, spans, and the log.

Spans carry names, sizes and outcomes, never text bodies. Without an OpenTelemetry SDK
they cost next to nothing.
"""

import logging
import logging.handlers
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from upwell.ground.redact import redact

LOG = logging.getLogger("upwell")
LOG.addHandler(logging.NullHandler())

_MAX_LOG_BYTES = 2_000_000
_LOG_FILES = 3


def new_trace_id() -> str:
    """32 hex digits, as W3C trace context has them."""
    return secrets.token_hex(16)


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[Any]:
    """A span of work called `name`. Attributes hold sizes and outcomes, never content."""
    from opentelemetry import trace

    tracer = trace.get_tracer("upwell")
    if isinstance(tracer, trace.ProxyTracer):
        return nullcontext(trace.INVALID_SPAN)
    return tracer.start_as_current_span(name, attributes=attributes)


def export_spans(environment: Mapping[str, str]) -> bool:
    """Send spans to the OTLP endpoint that `OTEL_EXPORTER_OTLP_ENDPOINT` names (Langfuse takes
    OTLP), when the extra `upwell[otel]` is installed. Gives whether they are sent."""
    if not environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        LOG.warning("spans are not sent: pip install 'upwell[otel]'")
        return False
    from opentelemetry import trace

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


def _masked(record: logging.LogRecord) -> bool:
    """No secret reaches the log, whoever said it."""
    record.msg, record.args = redact(record.getMessage())[0], None
    return True


class _Quiet(logging.handlers.RotatingFileHandler):
    """A line that cannot be written (a full disk) is dropped, without a traceback on stderr."""

    def handleError(self, record: logging.LogRecord) -> None:
        del record


def log_to(folder: Path) -> None:
    """Write the log under `folder`, rotated at 2 MB, three files kept, private to the user.

    A folder that cannot be written to costs the log, not the call.
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
