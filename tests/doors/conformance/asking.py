"""The reference server's tools and prompt that need input from the client before they answer. In
the modern era they return `input_required` (SEP-2322); in the handshake era they send requests to
the client, as the official SDK does.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[Any]
Questions = Mapping[str, types.InputRequest]
MODERN = "2026-07-28"
_SECRET = secrets.token_bytes(32)


def form(message: str, **fields: str) -> types.ElicitRequest:
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in fields.items()},
        "required": list(fields),
    }
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def sample(words: str, tokens: int) -> types.CreateMessageRequest:
    reply = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=words))
    params = types.CreateMessageRequestParams(messages=[reply], max_tokens=tokens)
    return types.CreateMessageRequest(params=params)


NAME = {"user_name": form("What is your name?", name="string")}
CONFIRM = {"confirm": form("Please confirm", ok="boolean")}
CAPITAL = {"capital_question": sample("What is the capital of France?", 100)}
ROOTS = {"client_roots": types.ListRootsRequest()}
PREFIX = "test_input_required_result_"
ROUNDS: dict[str, Sequence[Questions]] = {
    f"{PREFIX}elicitation": [NAME],
    f"{PREFIX}sampling": [CAPITAL],
    f"{PREFIX}list_roots": [ROOTS],
    f"{PREFIX}request_state": [CONFIRM],
    f"{PREFIX}tampered_state": [CONFIRM],
    f"{PREFIX}multiple_inputs": [{**NAME, "greeting": sample("Generate a greeting", 50), **ROOTS}],
    f"{PREFIX}multi_round": [
        {"step1": form("Step 1: What is your name?", name="string")},
        {"step2": form("Step 2: What is your favorite color?", color="string")},
    ],
    f"{PREFIX}capabilities": [{**NAME, **CAPITAL}],
    f"{PREFIX}prompt": [
        {"user_context": form("What context should the prompt use?", context="string")}
    ],
    "test_streaming_elicitation": [NAME],
}
STATELESS = {f"{PREFIX}elicitation", f"{PREFIX}prompt"}
"""The tools that ask once; they must accept answers without a state."""
TOOLS = [name for name in ROUNDS if name != f"{PREFIX}prompt"]
WANTS: Mapping[type, types.ClientCapabilities] = {
    types.ElicitRequest: types.ClientCapabilities(elicitation=types.ElicitationCapability()),
    types.CreateMessageRequest: types.ClientCapabilities(sampling=types.SamplingCapability()),
    types.ListRootsRequest: types.ClientCapabilities(roots=types.RootsCapability()),
}
RESULTS: Mapping[type, type[Any]] = {
    types.ElicitRequest: types.ElicitResult,
    types.CreateMessageRequest: types.CreateMessageResult,
    types.ListRootsRequest: types.ListRootsResult,
}


async def asked[Done](
    context: Context,
    params: types.InputResponseRequestParams,
    name: str,
    done: Callable[[str], Done],
) -> Done | types.InputRequiredResult:
    """The result that `done` makes from the answers, or the questions that are still open."""
    rounds = [_allowed(context, questions) for questions in ROUNDS[name]]
    if context.protocol_version != MODERN:
        return done("; ".join([await _by_requests(context, questions) for questions in rounds]))
    options = dict(params.input_responses or {})
    number = _round_of(name, params.request_state)
    if options and (number is not None or name in STATELESS):
        number = number or 0
        if all(_answers(options.get(key), asked) for key, asked in rounds[number].items()):
            number += 1
        if number == len(rounds):
            return done(f"state-ok: {options}")
    number = number or 0
    state = None if name in STATELESS else _state(name, number)
    return types.InputRequiredResult(input_requests=dict(rounds[number]), request_state=state)


async def refuse_without_sampling(context: Context) -> None:
    """`test_missing_capability`: a tool that needs sampling. In the handshake era, a client may
    declare it and still not answer, so the tool also asks.
    """
    expected = WANTS[types.CreateMessageRequest]
    able = context.session.check_client_capability(expected)
    if able and context.protocol_version != MODERN:
        able = "not answered" not in await _by_requests(context, CAPITAL)
    if not able:
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=expected)
        reply = data.model_dump(by_alias=True, exclude_none=True)
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is needed", reply)


def _allowed(context: Context, questions: Questions) -> Questions:
    """The questions that the client declared it can answer; all of them if it declared nothing."""
    check = context.session.check_client_capability
    able = {key: question for key, question in questions.items() if check(WANTS[type(question)])}
    return able or questions


async def _by_requests(context: Context, questions: Questions) -> str:
    collected = []
    for request in questions.values():
        try:
            result = await context.session.send_request(request, RESULTS[type(request)])
        except MCPError as error:
            collected.append(f"not answered: {error}")
        else:
            collected.append(result.model_dump_json(by_alias=True, exclude_none=True))
    return "state-ok: " + ", ".join(collected)


def _answers(answer: Any, request: types.InputRequest) -> bool:
    if not isinstance(answer, RESULTS[type(request)]):
        return False
    return not isinstance(answer, types.ElicitResult) or bool(answer.content)


def _mark(name: str, number: int) -> str:
    return hmac.new(_SECRET, f"{name} {number}".encode(), hashlib.sha256).hexdigest()


def _state(name: str, number: int) -> str:
    return f"{number}.{_mark(name, number)}"


def _round_of(name: str, state: str | None) -> int | None:
    """The round that the answers belong to; an error if the state is not ours."""
    if state is None:
        return None
    for number in range(len(ROUNDS[name])):
        if hmac.compare_digest(state, _state(name, number)):
            return number
    raise MCPError(types.INVALID_PARAMS, "this state is not ours")
