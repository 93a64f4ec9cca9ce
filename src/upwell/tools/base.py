"""The interface of upwell's own tools, and the toolbox that lists and calls them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upwell.ground.errors import UpwellError, UsageError
from upwell.ground.trace import conclude, span
from upwell.ground.types.rpc import Reply
from upwell.wire.rawjson import dumps

Result = Mapping[str, Any]
Run = Callable[[Mapping[str, Any], str], Awaitable[Result]]
READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One of upwell's tools. `run` takes the arguments and the session, and returns an MCP
    result."""

    name: str
    description: str
    properties: Mapping[str, Mapping[str, Any]]
    run: Run
    required: Sequence[str] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def listed(self) -> dict[str, Any]:
        """The MCP tool object."""
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


class Toolbox:
    """Tools by name. An error of a tool becomes an error result with its hint."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def listed(self) -> list[dict[str, Any]]:
        return [tool.listed() for tool in self._tools.values()]

    async def call(self, name: str, args: Mapping[str, Any], session: str) -> Reply:
        with span("upwell.tool", tool=name) as current:
            try:
                tool = self._tool(name)
                _check(tool, args)
                result = await tool.run(args, session)
            except UpwellError as error:
                result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
            failed = bool(result.get("isError"))
            conclude(current, "tool error" if failed else "ok", failed=failed)
        return Reply(result=dumps(result))

    def _tool(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise UsageError(
                f"{name} is not available to you", hint="the owner of this home grants access"
            )
        return tool


def text_result(*texts: str, meta: Mapping[str, Any] | None = None) -> Result:
    """An MCP result of text blocks."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts]}
    if meta:
        result["_meta"] = dict(meta)
    return result


_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "array": (list,),
    "boolean": (bool,),
}


def _check(tool: Tool, args: Mapping[str, Any]) -> None:
    """Check arguments against the tool's own schema: names, types, choices.

    Raises:
        UsageError: an argument is missing, unknown or of the wrong type.
    """
    for name in tool.required:
        if name not in args:
            raise UsageError(f"{tool.name} needs {name!r}")
    for name, value in args.items():
        known = tool.properties.get(name)
        if known is None:
            names = ", ".join(tool.properties)
            raise UsageError(f"{tool.name} has no argument {name!r}", hint=f"it takes {names}")
        kind = known.get("type", "string")
        wrong = isinstance(value, bool) and kind != "boolean"
        if wrong or not isinstance(value, _KINDS[kind]):
            raise UsageError(f"{tool.name}: {name!r} must be of type {kind}")
        if "enum" in known and value not in known["enum"]:
            raise UsageError(f"{tool.name}: {name!r} must be one of {', '.join(known['enum'])}")
