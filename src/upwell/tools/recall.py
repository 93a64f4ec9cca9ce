"""Asking on purpose: `memory_context`, `memory_search`, `memory_get` (seed 003), and `remember`."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from upwell.ground.errors import UsageError
from upwell.ground.names import memory_id
from upwell.ground.types import Cue, Door, Hit, Memory, Skip, SkipReason, Surfacing
from upwell.memory.successors import SUPERSEDED
from upwell.surface.render import EMPTY_DIGEST, citation, preview
from upwell.tools.base import READ_ONLY, Result, Tool, text_result
from upwell.wire.rawjson import dumps

DEFAULT_RESULTS = 6
MAX_RESULTS = 50
SNIPPET_CHARS = 700
NOTHING_IS_SEARCHED = "memory_context is switched off (memory_context.enabled = false)"


class Memories(Protocol):
    """The part of the library that these tools use."""

    async def search(
        self, text: str, *, limit: int = 10, project: str | None = None
    ) -> list[Hit]: ...

    async def get(self, memory_id: str) -> Memory | None: ...


Surface = Callable[[Cue], Awaitable[Surfacing | Skip]]


def context_tool(surface: Surface, cwd: str | None, *, enabled: bool) -> Tool:
    """`memory_context(message, format?)`: what is known that bears on a message."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        if not enabled:
            return text_result(NOTHING_IS_SEARCHED)
        outcome = await surface(Cue(door=Door.ASK, text=args["message"], session=session, cwd=cwd))
        meta = {"surfacing_id": outcome.id} if isinstance(outcome, Surfacing) else None
        if args.get("format", "digest") == "json":
            return text_result(dumps(described(outcome)).decode(), meta=meta)
        text = outcome.text if isinstance(outcome, Surfacing) else EMPTY_DIGEST
        return text_result(text, meta=meta)

    return Tool(
        name="memory_context",
        description=(
            "What earlier work knows about a message. Call it at the start of a turn with the "
            "user's message as it is; it answers at once when there is nothing. For a precise "
            "query use memory_search."
        ),
        properties={
            "message": {"type": "string", "description": "The user's message, unchanged."},
            "format": {"type": "string", "enum": ["digest", "json"]},
        },
        required=("message",),
        annotations=READ_ONLY,
        run=run,
    )


def search_tool(memories: Memories, project: str | None) -> Tool:
    """`memory_search(query, max_results?)`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        query = args["query"].strip()
        if not query:
            raise UsageError("memory_search needs a query that is not empty")
        limit = min(max(1, args.get("max_results", DEFAULT_RESULTS)), MAX_RESULTS)
        hits = await memories.search(query, limit=limit, project=project)
        if not hits:
            return text_result(f"Nothing is remembered about {query!r}.")
        lines = [
            f"[{citation(hit.memory)}] ({hit.score:.2f}, id {hit.memory.id}{_mark(hit)})\n"
            f"{preview(hit.memory.text, [query], SNIPPET_CHARS)}"
            for hit in hits
        ]
        return text_result("\n---\n".join(lines))

    return Tool(
        name="memory_search",
        description="Search the memory for a precise query. Gives citations and snippets.",
        properties={
            "query": {"type": "string"},
            "max_results": {"type": "integer", "description": f"Default {DEFAULT_RESULTS}."},
        },
        required=("query",),
        annotations=READ_ONLY,
        run=run,
    )


def get_tool(memories: Memories, project: str | None) -> Tool:
    """`memory_get(id)`: the full text of one memory."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        wanted = memory_id(args["id"])
        memory = await memories.get(wanted)
        if memory is None or (project and memory.project not in (None, project)):
            raise UsageError(
                f"no memory {wanted!r}", hint="memory_search finds ids; it may have been deleted"
            )
        return text_result(memory.text)

    return Tool(
        name="memory_get",
        description="The full text of a memory, by its id or its upwell://memory/… address.",
        properties={"id": {"type": "string"}},
        required=("id",),
        annotations=READ_ONLY,
        run=run,
    )


def _mark(hit: Hit) -> str:
    return ", superseded by a newer one" if hit.signals.get(SUPERSEDED) else ""


def described(outcome: Surfacing | Skip) -> dict[str, Any]:
    """The JSON of seed 003: entries and the queries that ran."""
    body: dict[str, Any] = {
        "applicable": not (
            isinstance(outcome, Skip) and outcome.reason is SkipReason.NOT_APPLICABLE
        ),
        "found": isinstance(outcome, Surfacing),
        "confidence": round(outcome.confidence, 4),
        "digest": outcome.text if isinstance(outcome, Surfacing) else EMPTY_DIGEST,
        "entries": [entry(hit) for hit in outcome.hits] if isinstance(outcome, Surfacing) else [],
        "queriesRun": list(outcome.queries),
        "signals": dict(outcome.signals),
        "intent": {
            "type": str(outcome.intent.kind),
            "confidence": outcome.intent.confidence,
            "topics": list(outcome.intent.topics),
            "source": outcome.intent.source,
        },
    }
    if isinstance(outcome, Surfacing):
        body["surfacing_id"] = outcome.id
    else:
        body["skippedReason"] = str(outcome.reason)
        body["skippedDetail"] = outcome.detail
        body["heldBack"] = [entry(hit) for hit in outcome.held_back]
    return body


def entry(hit: Hit) -> dict[str, Any]:
    """One hit as JSON, as `recall --json` and `memory_context` give it."""
    memory = hit.memory
    return {
        "id": memory.id,
        "text": memory.text,
        "score": round(hit.score, 4),
        "source": memory.source,
        "lines": list(memory.lines) if memory.lines else None,
        "namespace": memory.namespace,
        "tags": list(memory.tags),
        "paths": list(memory.paths),
        "created_at": iso(memory.created_at),
        "citation": citation(memory),
        "matchedQueries": list(hit.matched),
        "pinned": memory.pinned,
        "supersedes": memory.supersedes,
        "superseded": bool(hit.signals.get(SUPERSEDED)),
        "expires_at": iso(memory.expires_at),
    }


def iso(at: float | None) -> str | None:
    """Seconds since the epoch as ISO-8601 UTC with Z."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
