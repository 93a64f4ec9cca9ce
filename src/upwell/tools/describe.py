"""What a tool is in full, where the list of tools says one line of each."""

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from upwell.ground.errors import UsageError
from upwell.tools.base import READ_ONLY, Result, Tool, text_result


class Definitions(Protocol):
    """Every tool of every server, by its name in front."""

    def named(self, names: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
        """Definitions as JSON by name, and the names that no tool has."""
        ...

    def search(self, query: str) -> Mapping[str, str]:
        """Definitions as JSON by name, the closest first."""
        ...

    def names(self) -> list[str]: ...


def describe_tool(definitions: Definitions) -> Tool:
    """`describe_tools(names?, query?)`: whole definitions, one JSON object a line."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        names, query = [str(name) for name in args.get("names", [])], args.get("query", "")
        if not names and not query.strip():
            raise UsageError("describe_tools needs names or a query")
        found, unknown = definitions.named(names)
        if unknown and not query:
            raise _unknown(unknown, definitions.names())
        if query:
            found = {**found, **await asyncio.to_thread(definitions.search, query)}
        if not found:
            raise UsageError(f"no tool speaks of {query!r}", hint="try other words")
        return text_result("\n".join(found.values()))

    return Tool(
        name="describe_tools",
        description=(
            "The whole description and input schema of tools, by their names or by what they are "
            "for. The list of tools is long, so it says one line of each and only names plain "
            "arguments: ask here before you call a tool whose arguments are not plain."
        ),
        properties={
            "names": {"type": "array", "items": {"type": "string"}},
            "query": {"type": "string", "description": "What a tool should do."},
        },
        annotations=READ_ONLY,
        run=run,
    )


def _unknown(unknown: Sequence[str], names: Sequence[str]) -> UsageError:
    near = [name for one in unknown for name in difflib.get_close_matches(one, names, n=2)]
    hint = f"there is {', '.join(near)}" if near else "search with a query"
    return UsageError(f"no tool is called {', '.join(unknown[:5])}", hint=hint)
