"""The tools for explicit recall: `memory_context`, `memory_search` and `memory_get`."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from upwell.ground.errors import UsageError
from upwell.ground.names import MEMORY_URI, STM_ID
from upwell.ground.names import memory_id as id_in
from upwell.ground.project import is_seen
from upwell.ground.text.words import iso
from upwell.ground.trace import contained, present_trace_id
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Found, Hit, Memory
from upwell.ground.types.rpc import OWNER, Principal
from upwell.memory.library import SEARCH_SECONDS
from upwell.memory.ranking.scoring import SUPERSEDED
from upwell.surface.render import EMPTY_DIGEST, citation, harmless, preview
from upwell.tools.base import READ_ONLY, Result, Tool, text_result
from upwell.wire.rawjson import dumps

DEFAULT_RESULTS = 6
MAX_RESULTS = 50
SNIPPET_CHARS = 700
DEFAULT_LINES = 50
MAX_READ_CHARS = 16_000
_IDS = (MEMORY_URI, STM_ID)
LINES_CITED = re.compile(r"#L(\d{1,9})(?:-L?(\d{1,9}))?$")
SWITCHED_OFF = "memory_context is turned off (memory_context.enabled = false)"


class ToolMemories(Protocol):
    """The part of `memory.library.Library` that upwell's own tools and resources use."""

    async def find(
        self,
        text: str,
        *,
        limit: int = 10,
        project: str | None = None,
        namespaces: Sequence[str] = (),
        seconds: float = SEARCH_SECONDS,
    ) -> Found: ...

    async def get(self, memory_id: str) -> Memory | None: ...


Surface = Callable[[Cue], Awaitable[Surfacing | Skip]]
Document = Callable[[str, str | None, Sequence[str]], Awaitable[Sequence[str]]]
"""Returns the lines of an imported document. The arguments are the document's path as cited, and
the reader's project and namespaces.
"""
Viewed = Callable[[Sequence[Memory]], Awaitable[None]]
"""Receives the memories that an explicit search or read returned. Notes among them are recorded as
viewed.
"""
Sessions = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns passages from past sessions for a question, most relevant first, up to the given number.
"""


async def view_nothing(memories: Sequence[Memory]) -> None:
    del memories


def context_tool(
    surface: Surface, cwd: str | None, *, enabled: bool, principal: Principal = OWNER
) -> Tool:
    """`memory_context(message, format?)`. The digest is exactly what seed 003 (tests/NAMES.md)
    specifies. Further blocks list the stores that could not be searched."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        if not enabled:
            return text_result(SWITCHED_OFF)
        cue = Cue(
            door=Door.ASK,
            text=args["message"],
            session=session,
            cwd=cwd,
            principal=principal,
            trace_id=present_trace_id(),
        )
        outcome = await surface(cue)
        meta = {"surfacing_id": outcome.id} if isinstance(outcome, Surfacing) else None
        if args.get("format", "digest") == "json":
            return text_result(dumps(described(outcome)).decode(), meta=meta)
        text = outcome.text if isinstance(outcome, Surfacing) else EMPTY_DIGEST
        return text_result(text, *_without(outcome.missing), meta=meta)

    return Tool(
        name="memory_context",
        description=(
            "Context from earlier work for a message. Call it at the start of a turn with the "
            "user's message, unchanged; it returns at once if nothing is relevant. For a precise "
            "query, use memory_search."
        ),
        properties={
            "message": {"type": "string", "description": "The user's message, unchanged."},
            "format": {"type": "string", "enum": ["digest", "json"]},
        },
        required=("message",),
        annotations=READ_ONLY,
        run=run,
    )


def search_tool(
    memories: ToolMemories,
    project: str | None,
    principal: Principal = OWNER,
    sessions: Sessions | None = None,
    viewed: Viewed = view_nothing,
) -> Tool:
    """`memory_search(query, max_results?, sessions?)`. The result also names the stores that could
    not be searched. The function `sessions` is None if the principal may not search past
    sessions."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        query = args["query"].strip()
        if not query:
            raise UsageError("memory_search needs a non-empty query")
        limit = min(args.get("max_results", DEFAULT_RESULTS), MAX_RESULTS)
        if limit < 1:
            raise UsageError(f"max_results is {limit}", hint="pass 1 or more")
        if args.get("sessions"):
            if sessions is None:
                raise UsageError("only the owner of this home may search past sessions")
            nothing = f"No past session is relevant to {query!r:.200}."
            return text_result("\n---\n".join(await sessions(query, limit)) or nothing)
        result = await memories.find(
            query, limit=limit, project=project, namespaces=principal.namespaces
        )
        await viewed([hit.memory for hit in result.hits])
        without = _without(result.missing)
        if not result.hits:
            nothing = f"Nothing is remembered about {query!r}."
            return text_result("\n".join([nothing, *without]))
        lines = [
            f"[{citation(hit.memory)}] ({hit.score:.2f}, id {hit.memory.id}{_mark(hit)})\n"
            f"{preview(hit.memory.text, [query], SNIPPET_CHARS)}"
            for hit in result.hits
        ]
        return text_result("\n---\n".join([*lines, *without]))

    return Tool(
        name="memory_search",
        description=(
            "Search memories and imported documents for a precise query. Returns citations and "
            "snippets; memory_get continues from a citation. With sessions: true it searches the "
            "past sessions of every agent in this project instead: questions and conclusions, the "
            "commands that worked, and the current state of changed files. Paste an error to see "
            "whether it has occurred before."
        ),
        properties={
            "query": {"type": "string"},
            "max_results": {"type": "integer", "description": f"Default {DEFAULT_RESULTS}."},
            "sessions": {
                "type": "boolean",
                "description": "Search past sessions instead of memories.",
            },
        },
        required=("query",),
        annotations=READ_ONLY,
        run=run,
    )


def get_tool(
    memories: ToolMemories,
    document: Document,
    project: str | None,
    opened: Callable[[str, str], None] = lambda session, memory_id: None,
    principal: Principal = OWNER,
    viewed: Viewed = view_nothing,
    refresh: Callable[[], Awaitable[object]] | None = None,
) -> Tool:
    """`memory_get(path?, from?, lines?, id?)`: lines of an imported document, or the full text of
    one memory. When a memory is read, `opened` is called with the session and the memory's id.
    `refresh()` first reads files that have changed."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        citation = args.get("path") or args.get("id")
        if not citation:
            raise UsageError("memory_get needs a path or an id", hint="memory_search returns both")
        path, first, count = _span(citation.strip("[] "), args)
        if "path" not in args or path.startswith(_IDS):
            text = await _full_text(id_in(path))
            opened(session, id_in(path))
            return text_result(text)
        rows = await document(path, project, principal.namespaces)
        return text_result(numbered(path, rows, first, count))

    async def _full_text(memory_id: str) -> str:
        if refresh is not None:
            with contained("looking for changed notes"):
                await refresh()
        memory = await seen(memories, memory_id, project, principal)
        if memory is None:
            raise UsageError(
                f"no memory {memory_id!r}",
                hint="the memory may have been deleted; memory_search finds ids",
            )
        await viewed([memory])
        return memory.text

    return Tool(
        name="memory_get",
        description=(
            "Lines of a document, by the path in a citation ([path#L3-L5]); a turn of a past "
            "session (session:…#3); or the full text of a memory, by its id or its "
            "upwell://memory/… address."
        ),
        properties={
            "path": {"type": "string", "description": "As cited, with or without #L3-L5."},
            "from": {"type": "integer", "description": "The first line, counted from 1."},
            "lines": {
                "type": "integer",
                "description": f"Number of lines; default {DEFAULT_LINES} with from, else all.",
            },
            "id": {"type": "string", "description": "A memory instead of a document."},
        },
        annotations=READ_ONLY,
        run=run,
    )


async def seen(
    memories: ToolMemories, memory_id: str, project: str | None, principal: Principal
) -> Memory | None:
    """Return the memory with this id, if this project and principal may see it."""
    memory = await memories.get(memory_id)
    if memory is None or not principal.sees(memory.namespace):
        return None
    return memory if is_seen(memory.project, project) else None


def _without(places: Sequence[str]) -> list[str]:
    return [f"[upwell] searched without {place}" for place in places]


def _mark(hit: Hit) -> str:
    return ", superseded by a newer one" if hit.signals.get(SUPERSEDED) else ""


def _span(citation: str, args: Mapping[str, Any]) -> tuple[str, int | None, int | None]:
    """Return the path, first line and number of lines. Arguments override the citation."""
    cited = LINES_CITED.search(citation)
    first, count = args.get("from"), args.get("lines")
    if cited and first is None:
        first = int(cited.group(1))
        count = count or int(cited.group(2) or first) - first + 1
    return citation[: cited.start()] if cited else citation, first, count


def numbered(path: str, rows: Sequence[str], first: int | None, count: int | None) -> str:
    """Return the requested lines with their numbers, up to `MAX_READ_CHARS`. Raises UsageError if
    the first line is beyond the end of the document."""
    start = max(1, first or 1)
    if start > len(rows):
        raise UsageError(
            f"{path} has no line {start}",
            hint=f"it has only {len(rows)} lines",
        )
    requested = count if count is not None else len(rows) if first is None else DEFAULT_LINES
    last = min(len(rows), start + max(1, requested) - 1)
    shown: list[str] = [f"## {path}"]
    size = 0
    for number in range(start, last + 1):
        row = harmless(rows[number - 1])
        size += len(row) + 8
        if size > MAX_READ_CHARS and number > start:
            shown.append(f"… {len(rows)} lines in total; continue with from={number}")
            break
        shown.append(f"{number}\t{row[:MAX_READ_CHARS]}")
    return "\n".join(shown)


def described(outcome: Surfacing | Skip) -> dict[str, Any]:
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
    if outcome.missing:
        body["missing"] = list(outcome.missing)
    if isinstance(outcome, Surfacing):
        body["surfacing_id"] = outcome.id
    else:
        body["skippedReason"] = str(outcome.reason)
        body["skippedDetail"] = outcome.detail
        body["heldBack"] = [entry(hit) for hit in outcome.held_back]
    return body


def entry(hit: Hit) -> dict[str, Any]:
    """Return a hit as JSON, for `recall --json` and `memory_context`."""
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
