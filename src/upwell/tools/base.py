"""The interface of upwell's own tools, and the toolbox that lists and calls them."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from upwell.ground.errors import UpwellError, UsageError
from upwell.ground.trace import conclude, span
from upwell.ground.types.rpc import OWNER, Principal, Reply
from upwell.wire.rawjson import dumps

Result = Mapping[str, Any]
Run = Callable[[Mapping[str, Any], str], Awaitable[Result]]
READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


class Tool(Struct, frozen=True, kw_only=True):
    """One of upwell's tools. `run(args, session)` returns an MCP result."""

    name: str
    description: str
    properties: Mapping[str, Mapping[str, Any]]
    run: Run
    required: Sequence[str] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_read_only(self) -> bool:
        return self.annotations.get("readOnlyHint") is True

    def listed(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": dict(self.properties),
                "required": list(self.required),
            },
            "annotations": dict(self.annotations),
        }


Record = Callable[[str, str, str, str], None]
"""Records a call to a tool that writes. Receives the caller, the tool, the ids and names in the
arguments, and the outcome."""


def _subject(args: Mapping[str, Any]) -> str:
    """The ids and names in a tool's arguments, but no text."""
    named = (args.get(key) for key in ("id", "surfacing_id", "memory_id", "namespace", "tool"))
    return " ".join(value for value in named if isinstance(value, str))


class Toolbox:
    """Tools, keyed by name, without the `hidden` ones. If a tool raises an `UpwellError`, the call
    returns an error result."""

    def __init__(
        self,
        tools: Sequence[Tool],
        principal: Principal = OWNER,
        record: Record = lambda actor, action, subject, outcome: None,
        hidden: Collection[str] = (),
    ) -> None:
        self._tools = {tool.name: tool for tool in tools if tool.name not in hidden}
        self._principal = principal
        self._record = record

    def listed(self) -> list[dict[str, Any]]:
        return [tool.listed() for tool in self._tools.values()]

    async def call(self, name: str, args: Mapping[str, Any], session: str) -> Reply:
        outcome = "done"
        with span("upwell.tool", tool=name) as current:
            try:
                tool = self._allowed(name)
                result = await tool.run(_checked(tool, args), session)
            except UpwellError as error:
                outcome = f"refused: {error.message}"
                result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
            failed = bool(result.get("isError"))
            conclude(current, "tool error" if failed else "ok", failed=failed)
        if name in self._tools and not self._tools[name].is_read_only:
            self._record(self._principal.name, name, _subject(args), outcome)
        return Reply(result=dumps(result))

    def _allowed(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise UsageError(
                f"{name} is not available to you", hint="ask the owner of this home for access"
            )
        if not (tool.is_read_only or self._principal.may_write):
            raise UsageError(
                f"{name} changes the memory, and you may only read it",
                hint="ask the owner of this home for the writer role",
            )
        return tool


def text_result(*texts: str, meta: Mapping[str, Any] | None = None) -> Result:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts]}
    if meta:
        result["_meta"] = dict(meta)
    return result


MAX_NUMBER = 2**53
_INTEGER = re.compile(r"[+-]?[0-9]{1,15}(?:\.0{1,5})?")
_BOOLEANS = {"true": True, "false": False}
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "array": (list,),
    "boolean": (bool,),
}


def _checked(tool: Tool, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's arguments after checking their names, types and values. Models and clients
    send null for an argument that they leave out, and numbers as text or text as numbers."""
    unknown = next((name for name in args if name not in tool.properties), None)
    if unknown is not None:
        names = ", ".join(tool.properties)
        raise UsageError(f"{tool.name} has no argument {unknown!r}", hint=f"it takes {names}")
    given = {name: value for name, value in args.items() if value is not None}
    for name in tool.required:
        if name not in given:
            raise UsageError(f"{tool.name} needs {name!r}")
    for name, value in given.items():
        known = tool.properties[name]
        kind = known.get("type", "string")
        given[name] = value = _converted(value, kind)
        wrong = isinstance(value, bool) and kind != "boolean"
        if wrong or not isinstance(value, _KINDS[kind]):
            raise UsageError(f"{tool.name}: {name!r} must be of type {kind}")
        if "enum" in known and value not in known["enum"]:
            raise UsageError(f"{tool.name}: {name!r} must be one of {', '.join(known['enum'])}")
    return given


def _converted(value: Any, kind: str) -> Any:
    """The value as one of this kind, if it can only mean that."""
    if kind == "integer" and isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(float(value))
    if kind == "integer" and isinstance(value, float) and abs(value) < MAX_NUMBER:
        return int(value) if value.is_integer() else value
    if kind == "string" and isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < MAX_NUMBER else value
    if kind == "boolean" and isinstance(value, str):
        return _BOOLEANS.get(value.strip().lower(), value)
    return value
