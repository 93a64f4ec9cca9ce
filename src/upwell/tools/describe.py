"""The tool that returns the full definitions of other tools. It is listed only if the definitions
in the tool list are shortened."""

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from upwell.ground.errors import UsageError
from upwell.tools.base import READ_ONLY, Result, Tool, text_result


class Definitions(Protocol):
    """The tools of all servers, keyed by public name."""

    def named(self, names: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
        """Return JSON definitions, keyed by name, and the unknown names."""
        ...

    def search(self, query: str) -> Mapping[str, str]:
        """Return JSON definitions, keyed by name, best match first. Later ones may lack schemas."""
        ...

    def names(self) -> list[str]: ...


def describe_tool(definitions: Definitions) -> Tool:
    """Return the tool `describe_tools(names?, query?)`. Its result has one JSON object per line."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        names, query = [str(name) for name in args.get("names", [])], args.get("query", "")
        if not names and not query.strip():
            raise UsageError("describe_tools needs names or a query")
        matches, unknown = definitions.named(names)
        if unknown and not query:
            raise _unknown(unknown, definitions.names())
        if query:
            matches = {**matches, **await asyncio.to_thread(definitions.search, query)}
        if not matches:
            raise UsageError(f"no tool matches {query!r}", hint="try other words")
        return text_result("\n".join(matches.values()))

    return Tool(
        name="describe_tools",
        description=(
            "The full descriptions and input schemas of tools, by name or by purpose. The list of "
            "tools is long, so it has one line for each tool and only the types of simple "
            "arguments: look here before calling a tool with other arguments."
        ),
        properties={
            "names": {"type": "array", "items": {"type": "string"}},
            "query": {"type": "string", "description": "The purpose of the tool, in a few words."},
        },
        annotations=READ_ONLY,
        run=run,
    )


def _unknown(unknown: Sequence[str], names: Sequence[str]) -> UsageError:
    near = [name for word in unknown for name in difflib.get_close_matches(word, names, n=2)]
    hint = f"did you mean {' or '.join(near)}?" if near else "search with a query"
    return UsageError(f"no tool is called {', '.join(unknown[:5])}", hint=hint)
