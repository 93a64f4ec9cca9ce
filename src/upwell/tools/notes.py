"""Writing on purpose: `add_memory` (seed 001)."""

from collections.abc import Mapping
from typing import Any, Protocol

from upwell.ground.types import Memory, Provenance, Trust
from upwell.memory.base import Added
from upwell.tools.base import Result, Tool, text_result


class Keeping(Protocol):
    """The part of the library that this tool uses."""

    async def add(self, memory: Memory) -> Added: ...


def add_tool(memories: Keeping, project: str | None) -> Tool:
    """`add_memory(content)`: keep a note. It belongs to the project, and an agent stands behind
    it: that is said wherever it is shown."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        provenance = Provenance(door="tool", server="upwell", tool="add_memory", session=session)
        added = await memories.add(
            Memory(text=args["content"], project=project, trust=Trust.AGENT, provenance=provenance)
        )
        said = [added.id]
        said += [f"a secret was masked before it was kept ({rule})" for rule in added.redacted]
        said += [f"memory {other} says the same or nearly the same" for other in added.duplicates]
        return text_result("\n".join(said))

    return Tool(
        name="add_memory",
        description=(
            "Keep a note for later work: a decision and its reason, a pitfall, a preference. One "
            "thing a note, understandable by itself, naming the files it is about. Gives its id."
        ),
        properties={"content": {"type": "string"}},
        required=("content",),
        annotations={"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
        run=run,
    )
