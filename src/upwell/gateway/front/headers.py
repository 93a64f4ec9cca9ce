"""Checks the headers and the body of an HTTP request, and whether the two agree."""

from collections.abc import Iterable, Mapping

from upwell.gateway.clients import text_of
from upwell.gateway.eras import (
    CLIENT_CAPABILITIES,
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    PROTOCOL_VERSION,
    UNSUPPORTED_VERSION,
    meta_of,
)
from upwell.ground.types.rpc import Reply
from upwell.wire.mirrors import NAMED, Mirror, decoded, differing
from upwell.wire.peer import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Message,
    answer_line,
    error_body,
    read_message,
)
from upwell.wire.rawjson import NotJson, RawObject, kind_of

EVENTS, JSON = "text/event-stream", "application/json"


class BadRequest(Exception):
    """Raised for a request whose response is an HTTP error with a JSON-RPC error as its body."""

    def __init__(self, status: int, code: int, why: str, identity: bytes = b"null") -> None:
        super().__init__(why)
        self.status = status
        self.line = answer_line(identity, Reply(error=error_body(code, why)))


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return a request's headers, keyed by lower-case name.

    Raises:
        BadRequest: an MCP header occurs twice. A proxy might read the first one, while a server
            reads the last one.
    """
    headers: dict[str, str] = {}
    for key, value in raw:
        name = key.decode("latin-1").lower()
        if name in headers and name.startswith("mcp-"):
            raise BadRequest(400, HEADER_MISMATCH, f"the {name} header occurs twice")
        headers[name] = value.decode("latin-1")
    return headers


def message_of(headers: Mapping[str, str], body: bytes) -> Message:
    """Read the message in the body of a POST.

    Raises:
        BadRequest: the headers are not valid for a POST, or the body is not one message.
    """
    accept = headers.get("accept", "")
    if (JSON not in accept or EVENTS not in accept) and "*/*" not in accept:
        why = f"the Accept header of a POST must include {JSON} and {EVENTS}"
        raise BadRequest(406, INVALID_REQUEST, why)
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise BadRequest(415, INVALID_REQUEST, f"the body of a POST must be {JSON}")
    try:
        if kind_of(body) != "object":
            raise BadRequest(400, INVALID_REQUEST, "the body must be one JSON object")
        message = read_message(body)
    except NotJson as error:
        raise BadRequest(400, PARSE_ERROR, f"not a JSON-RPC message: {error}") from error
    if message.repaired:
        # Replacement characters would reach the tool as if the agent had meant them.
        raise BadRequest(400, PARSE_ERROR, "the body is not UTF-8")
    if message.method is None and message.id is None:
        raise BadRequest(400, INVALID_REQUEST, "a message needs a method or an id")
    return message


def params_of(message: Message) -> RawObject:
    try:
        return RawObject.parse(message.params)
    except NotJson:
        return RawObject()


def check_headers(headers: Mapping[str, str], message: Message, params: RawObject) -> None:
    """Check the headers that repeat parts of the body. A proxy may route by these headers.

    Raises:
        BadRequest: a header differs from the body, or `_meta` lacks a required key.
    """
    identity = message.id or b"null"
    meta = meta_of(params)
    missing = [key for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES) if key not in meta]
    if missing:
        raise BadRequest(400, INVALID_PARAMS, f"_meta lacks {', '.join(missing)}", identity)
    expected = {
        "mcp-protocol-version": meta.value(PROTOCOL_VERSION),
        "mcp-method": message.method,
    }
    key = NAMED.get(message.method or "")
    if key and key in params:
        expected["mcp-name"] = text_of(params, key)
    for name, value in expected.items():
        if decoded(headers.get(name)) != value:
            why = f"the {name} header differs from the body"
            raise BadRequest(400, HEADER_MISMATCH, why, identity)


def status_of(line: bytes) -> int:
    """Return the HTTP status for a reply to a modern client."""
    if b'"error":' not in line[:400]:
        return 200
    try:
        error = RawObject.parse(line).get("error")
        code = RawObject.parse(error).value("code") if error else None
    except NotJson:
        return 200
    if code == METHOD_NOT_FOUND:
        return 404
    return 400 if code in (UNSUPPORTED_VERSION, HEADER_MISMATCH, MISSING_CAPABILITY) else 200


def check_arguments(
    headers: Mapping[str, str], message: Message, params: RawObject, mirrors: tuple[Mirror, ...]
) -> None:
    """Check the headers that must repeat arguments of a tool call.

    Raises:
        BadRequest: a header differs from its argument.
    """
    header = differing(mirrors, params.get("arguments") or b"{}", headers)
    if header is not None:
        why = f"the {header} header differs from the arguments"
        raise BadRequest(400, HEADER_MISMATCH, why, message.id or b"null")
