"""Follow a call through upwell: trace ids, spans, and the log.

Spans contain names, sizes and outcomes, never content. Without an OpenTelemetry SDK they cost
almost nothing.
"""

import logging
import logging.handlers
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from upwell.ground.errors import UpwellError
from upwell.ground.secrets.redact import redact

LOG = logging.getLogger("upwell")
LOG.addHandler(logging.NullHandler())

_MAX_LOG_BYTES = 2_000_000
_LOG_FILES = 3


def new_trace_id() -> str:
    """Return 32 random hex digits, the form of W3C trace context."""
    return secrets.token_hex(16)


def contained(action: str) -> AbstractContextManager[None, bool]:
    """Log a fault of the block instead of raising it: our own errors as one line, any other
    exception with its traceback. Cancellation passes."""
    return _Contained(action)


class _Contained:
    # A class, because every event enters several of these and a generator takes three times as
    # long.

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


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[Any]:
    """Open a span called `name`. Attributes hold sizes and outcomes, never content."""
    from opentelemetry import trace

    tracer = trace.get_tracer("upwell")
    if isinstance(tracer, trace.ProxyTracer):
        return nullcontext(trace.INVALID_SPAN)
    return tracer.start_as_current_span(name, attributes=attributes)


def export_spans(environment: Mapping[str, str]) -> bool:
    """Send spans to the OTLP endpoint in `OTEL_EXPORTER_OTLP_ENDPOINT` (Langfuse accepts OTLP).

    Requires the extra `upwell[otel]`. Returns whether spans are sent.
    """
    if not environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        LOG.warning("spans are not sent; install 'upwell[otel]'")
        return False
    from opentelemetry import trace

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


def _masked(record: logging.LogRecord) -> bool:
    """Mask the secrets in a log record."""
    record.msg, record.args = redact(record.getMessage())[0], None
    return True


class _Quiet(logging.handlers.RotatingFileHandler):
    """Drops a line that cannot be written (a full disk) instead of printing a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:
        del record


def log_to(folder: Path) -> None:
    """Write the log under `folder`, private to the user, in three files of 2 MB.

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
