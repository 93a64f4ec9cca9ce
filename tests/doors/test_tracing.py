"""Spans as an OTLP endpoint receives them: one trace for a call and what follows from it."""

import base64
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.conftest import ROOT
from tests.doors.address import serving
from tests.doors.conftest import Gateway, script, write_config
from tests.doors.reading import everything, key_in
from tests.doors.seeds.conftest import upwell_in
from tests.doors.seeds.model import answering
from tests.doors.seeds.rows import row
from tests.doors.test_hook_compress import LONG, bash

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CLIENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
FACT = "The kettle whistles in B flat when the pools overflow"
OK, ERROR = Status.STATUS_CODE_OK, Status.STATUS_CODE_ERROR


@dataclass
class Receiver:
    """An OTLP endpoint on loopback: its requests' paths and headers, and the spans in them."""

    address: str = ""
    paths: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    services: set[str] = field(default_factory=set[str])
    spans: list[Any] = field(default_factory=list[Any])
    raw: bytes = b""

    def take(self, body: bytes) -> None:
        self.raw += body
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {item.key: item.value.string_value for item in group.resource.attributes}
            self.services.add(names["service.name"])
            self.spans += [span for scope in group.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Any:
        (span,) = self.named(name)
        return span


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            receiver.paths.append(self.path)
            receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            receiver.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with answering(Handler) as address:
        receiver.address = address
        yield receiver


def home_of(folder: Path, **more: Any) -> Path:
    home = folder / "home"
    tables: dict[str, Any] = {
        "surface": {"moments": "all", "race_ms": 5000},
        "compress": {"max_result_tokens": 500},
        **more,
    }
    write_config(home, {"up": script("upstream", "--state", str(folder))}, **tables)
    upwell_in(home, "remember", FACT)
    return home


def value_of(span: Any, name: str) -> Any:
    (value,) = [item.value for item in span.attributes if item.key == name]
    return getattr(value, value.WhichOneof("value"))


def statuses(spans: Sequence[Any]) -> set[int]:
    return {span.status.code for span in spans}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Receiver, list[str]]]:
    """Make a call with `traceparent`, read its result on, rate the memory that it brought, make a
    failing call, post a hook event, and end the gateway. Returns what the endpoint received, and
    the trace ids in `explain`."""
    folder = tmp_path_factory.mktemp("traced")
    home = home_of(folder)
    with receiving() as receiver:
        with serving(
            home, folder / "serve.log", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.address
        ) as address:
            agent = address.begin()
            arguments = {"_context_query": "why does the kettle whistle?"}
            call = {"name": "up__big_markdown", "arguments": arguments, "_meta": CLIENT}
            result = agent.post("tools/call", 1, call)[2]["result"]
            assert FACT in everything(result)
            agent.call("upwell__read_more", key=key_in(result))
            surfacing = result["_meta"]["surfacing_id"]
            agent.call("upwell__feedback", surfacing_id=surfacing, rating="helpful")
            agent.call("up__fail")
            event = {
                "hook_event_name": "UserPromptSubmit",
                "session_id": "hooked",
                "cwd": "/",
                "prompt": "why does the kettle whistle when the pools overflow?",
            }
            address.send("POST", event, path="/hook/claude")
        listed = json.loads(upwell_in(home, "explain", "--json"))["decisions"]
        yield receiver, [decision["trace_id"] for decision in listed]


Traced = tuple[Receiver, list[str]]


def test_call_surfacing_read_and_rating_are_one_trace(traced: Traced) -> None:
    receiver, _ = traced
    (call,) = [s for s in receiver.named("upwell.call") if value_of(s, "tool") == "big_markdown"]
    assert (call.trace_id.hex(), call.parent_span_id.hex()) == (TRACE, PARENT)
    surface = [s for s in receiver.named("upwell.surface") if s.trace_id == call.trace_id]
    assert {span.parent_span_id for span in surface} == {call.span_id}
    followers = [receiver.one("upwell.read_on"), receiver.one("upwell.feedback")]
    own = {call.span_id, *(span.span_id for span in receiver.spans)}
    assert {span.trace_id.hex() for span in followers} == {TRACE}
    assert all(span.parent_span_id in own for span in followers)


def test_every_span_has_a_status_and_an_outcome(traced: Traced) -> None:
    receiver, _ = traced
    outcomes = {(span.name, value_of(span, "outcome")): span.status.code for span in receiver.spans}
    assert outcomes["upwell.call", "ok"] == OK
    assert outcomes["upwell.call", "tool error"] == ERROR
    assert outcomes["upwell.surface", "surfaced 1"] == OK
    assert outcomes["upwell.read_on", "read"] == OK
    assert outcomes["upwell.feedback", "helpful"] == OK
    assert outcomes["upwell.hook", "answered"] == OK
    assert outcomes["upwell.tool", "ok"] == OK
    assert set(outcomes.values()) == {OK, ERROR}


def test_the_spans_have_sizes_names_and_no_text(traced: Traced) -> None:
    receiver, _ = traced
    (call,) = [s for s in receiver.named("upwell.call") if value_of(s, "tool") == "big_markdown"]
    assert value_of(call, "bytes_received") > 100_000 > value_of(call, "bytes_delivered") > 0
    assert receiver.services == {"upwell"}
    for word in (b"kettle", b"whistle", b"Section 1"):
        assert word not in receiver.raw


def test_explain_names_the_traces_that_were_sent(traced: Traced) -> None:
    receiver, listed = traced
    assert TRACE in listed
    assert set(listed) <= {span.trace_id.hex() for span in receiver.spans}


def test_a_hook_event_and_its_surfacing_are_one_trace(traced: Traced) -> None:
    receiver, _ = traced
    hook = receiver.one("upwell.hook")
    inside = [span for span in receiver.named("upwell.surface") if span.trace_id == hook.trace_id]
    assert [span.parent_span_id for span in inside] == [hook.span_id]
    assert hook.parent_span_id == b""


def test_the_header_of_an_http_request_counts_too(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    with receiving() as receiver:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.address, "OTEL_SERVICE_NAME": "memory"}
        with serving(home, tmp_path / "serve.log", **endpoint) as address:
            agent = address.begin()
            call = {"name": "up__echo", "arguments": {"text": "hi"}}
            assert agent.post("tools/call", 2, call, **CLIENT)[0] == 200
            search = {"name": "upwell__memory_context", "arguments": {"message": "why a kettle?"}}
            assert agent.post("tools/call", 3, search, **CLIENT)[0] == 200
        assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}
        assert receiver.services == {"memory"}


@row("follow-up reads of one trace")
def test_a_later_read_is_of_the_trace_of_its_call(gateway: Gateway) -> None:
    with receiving() as receiver:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.address}
        peer = gateway({"up": script("upstream")}, env=env)
        peer.wait_for_tools("up__big_json", "upwell__read_more")
        keys = [key_in(peer.call(f"up__{tool}")) for tool in ("big_markdown", "big_json")]
        for key in reversed(keys):
            peer.call("upwell__read_more", key=key)
        peer.close()
        calls = [span.trace_id for span in receiver.named("upwell.call")]
        assert len(set(calls)) == 2
        assert [span.trace_id for span in receiver.named("upwell.read_on")] == calls[::-1]


@row("Langfuse, OpenTelemetry")
def test_the_recipe_for_langfuse(gateway: Gateway, tmp_path: Path) -> None:
    """The variables of docs/servers.md, at the address of a local receiver."""
    text = (ROOT / "docs" / "servers.md").read_text()
    recipe = text[text.index("### Langfuse") :]
    lines = recipe[recipe.index("```sh") : recipe.index("```\n", recipe.index("```sh") + 5)]
    keys = base64.b64encode(b"pk-lf-1:sk-lf-2").decode()
    with receiving() as receiver:
        env = {}
        for line in lines.splitlines():
            if line.startswith("export OTEL_"):
                name, _, value = line.removeprefix("export ").partition("=")
                value = value.strip('"').replace("https://cloud.langfuse.com", receiver.address)
                env[name] = value.replace("$KEYS", keys)
        assert len(env) == 2
        peer = gateway({"up": script("upstream")}, env=env)
        peer.wait_for_tools("up__echo")
        peer.call("up__echo", text="hi")
        peer.close()
        assert set(receiver.paths) == {"/api/public/otel/v1/traces"}
        assert {headers["authorization"] for headers in receiver.headers} == {f"Basic {keys}"}
        assert {headers["x-langfuse-ingestion-version"] for headers in receiver.headers} == {"4"}
        assert receiver.one("upwell.call").status.code == OK


def test_an_endpoint_that_is_down_holds_nothing_up(gateway: Gateway, tmp_path: Path) -> None:
    peer = gateway(
        {"up": script("upstream")}, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    )
    peer.wait_for_tools("up__echo")
    assert everything(peer.call("up__echo", text="hi")) == "hi"
    began = time.monotonic()
    peer.close()
    assert time.monotonic() - began < 10
    assert peer.errors
    assert "Traceback" not in peer.errors.read_text()
    assert "opentelemetry" not in peer.errors.read_text()


def test_a_read_of_a_result_that_a_hook_shortened_joins_the_trace_of_the_hook(
    tmp_path: Path,
) -> None:
    home = home_of(tmp_path, hook={"compress": ["claude"]})
    event = bash(str(tmp_path), LONG)
    with receiving() as receiver:
        with serving(
            home, tmp_path / "serve.log", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.address
        ) as address:
            answer = address.send("POST", event, path="/hook/claude")[2]
            output = answer["hookSpecificOutput"]["updatedToolOutput"]["stdout"]
            (key,) = set(re.findall(r'key="([^"]+)"', output))
            address.begin().call("upwell__read_more", key=key)
        read, hook = receiver.one("upwell.read_on"), receiver.one("upwell.hook")
        assert read.trace_id == hook.trace_id
