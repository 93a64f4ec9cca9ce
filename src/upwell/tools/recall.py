"""Asking on purpose: `memory_context`, `memory_search`, `memory_get` (seed 003), and `remember`."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from upwell.ground.errors import UsageError
from upwell.ground.names import MEMORY_URI
from upwell.ground.names import memory_id as id_in
from upwell.ground.principal import OWNER, Principal
from upwell.ground.project import is_seen
from upwell.ground.text.times import iso
from upwell.ground.types import Cue, Door, Hit, Memory, Skip, SkipReason, Surfacing
from upwell.memory.successors import SUPERSEDED
from upwell.surface.frame import harmless
from upwell.surface.render import EMPTY_DIGEST, citation, preview
from upwell.tools.base import READ_ONLY, Result, Tool, text_result
from upwell.wire.rawjson import dumps

DEFAULT_RESULTS = 6
MAX_RESULTS = 50
SNIPPET_CHARS = 700
DEFAULT_LINES = 50
MAX_READ_CHARS = 16_000
_IDS = (MEMORY_URI, "stm:")
_CITED_LINES = re.compile(r"#L(\d{1,9})(?:-L?(\d{1,9}))?$")
NOTHING_IS_SEARCHED = "memory_context is switched off (memory_context.enabled = false)"


class Memories(Protocol):
    """The part of the library that our tools and resources use."""

    async def search(
        self,
        text: str,
        *,
        limit: int = 10,
        project: str | None = None,
        namespaces: Sequence[str] = (),
    ) -> list[Hit]: ...

    async def get(self, memory_id: str) -> Memory | None: ...


Surface = Callable[[Cue], Awaitable[Surfacing | Skip]]
Document = Callable[[str, str | None, Sequence[str]], Awaitable[Sequence[str]]]
"""The lines of an imported document, by its path in citations, as a project and these namespaces
see it."""


def context_tool(
    surface: Surface, cwd: str | None, *, enabled: bool, principal: Principal = OWNER
) -> Tool:
    """`memory_context(message, format?)`: what is known that bears on a message. The digest has the
    seed's bytes; what was searched without stands in blocks behind it."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        if not enabled:
            return text_result(NOTHING_IS_SEARCHED)
        asked = Cue(
            door=Door.ASK, text=args["message"], session=session, cwd=cwd, principal=principal
        )
        outcome = await surface(asked)
        meta = {"surfacing_id": outcome.id} if isinstance(outcome, Surfacing) else None
        if args.get("format", "digest") == "json":
            return text_result(dumps(described(outcome)).decode(), meta=meta)
        text = outcome.text if isinstance(outcome, Surfacing) else EMPTY_DIGEST
        return text_result(text, *_without(outcome.missing), meta=meta)

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


def search_tool(
    memories: Memories,
    project: str | None,
    missing: Callable[[], Sequence[str]] = lambda: (),
    principal: Principal = OWNER,
) -> Tool:
    """`memory_search(query, max_results?)`; `missing` says which places the search just made did
    without, and why."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        query = args["query"].strip()
        if not query:
            raise UsageError("memory_search needs a query that is not empty")
        limit = min(args.get("max_results", DEFAULT_RESULTS), MAX_RESULTS)
        if limit < 1:
            raise UsageError(f"max_results is {limit}: nothing can be found", hint="give 1 or more")
        hits = await memories.search(
            query, limit=limit, project=project, namespaces=principal.namespaces
        )
        without = _without(missing())
        if not hits:
            nothing = f"Nothing is remembered about {query!r}."
            return text_result("\n".join([nothing, *without]))
        lines = [
            f"[{citation(hit.memory)}] ({hit.score:.2f}, id {hit.memory.id}{_mark(hit)})\n"
            f"{preview(hit.memory.text, [query], SNIPPET_CHARS)}"
            for hit in hits
        ]
        return text_result("\n---\n".join([*lines, *without]))

    return Tool(
        name="memory_search",
        description=(
            "Search what is remembered, imported documents included, for a precise query. Gives "
            "citations and snippets; memory_get reads on from a citation."
        ),
        properties={
            "query": {"type": "string"},
            "max_results": {"type": "integer", "description": f"Default {DEFAULT_RESULTS}."},
        },
        required=("query",),
        annotations=READ_ONLY,
        run=run,
    )


def get_tool(
    memories: Memories,
    document: Document,
    project: str | None,
    opened: Callable[[str, str], None] = lambda session, memory_id: None,
    principal: Principal = OWNER,
) -> Tool:
    """`memory_get(path, from?, lines?)`: lines of an imported document (seed 003); or the full
    text of one memory, by its id; `opened` hears which session asked for which."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        wanted = args.get("path") or args.get("id")
        if not wanted:
            raise UsageError("memory_get needs a path or an id", hint="memory_search gives both")
        path, first, count = _asked(wanted.strip("[] "), args)
        if "path" not in args or path.startswith(_IDS):
            text = await _full_text(id_in(path))
            opened(session, id_in(path))
            return text_result(text)
        rows = await document(path, project, principal.namespaces)
        return text_result(numbered(path, rows, first, count))

    async def _full_text(memory_id: str) -> str:
        memory = await seen(memories, memory_id, project, principal)
        if memory is None:
            raise UsageError(
                f"no memory {memory_id!r}",
                hint="memory_search finds ids; it may have been deleted",
            )
        return memory.text

    return Tool(
        name="memory_get",
        description=(
            "Lines of a document, by the path that a citation names ([path#L3-L5]); or the full "
            "text of a memory, by its id or its upwell://memory/… address."
        ),
        properties={
            "path": {"type": "string", "description": "As cited, with or without #L3-L5."},
            "from": {"type": "integer", "description": "The first line, from 1."},
            "lines": {"type": "integer", "description": f"How many; {DEFAULT_LINES} after from."},
            "id": {"type": "string", "description": "A memory instead of a document."},
        },
        annotations=READ_ONLY,
        run=run,
    )


async def seen(
    memories: Memories, memory_id: str, project: str | None, principal: Principal
) -> Memory | None:
    """The memory of this id, where this project and principal may see it."""
    memory = await memories.get(memory_id)
    if memory is None or not principal.sees(memory.namespace):
        return None
    return memory if is_seen(memory.project, project) else None


def _without(places: Sequence[str]) -> list[str]:
    return [f"[upwell] searched without {place}" for place in places]


def _mark(hit: Hit) -> str:
    return ", superseded by a newer one" if hit.signals.get(SUPERSEDED) else ""


def _asked(wanted: str, args: Mapping[str, Any]) -> tuple[str, int | None, int | None]:
    """The path, the first line and how many. What the arguments say wins over the citation."""
    cited = _CITED_LINES.search(wanted)
    first, count = args.get("from"), args.get("lines")
    if cited and first is None:
        first = int(cited.group(1))
        count = count or int(cited.group(2) or first) - first + 1
    return wanted[: cited.start()] if cited else wanted, first, count


def numbered(path: str, rows: Sequence[str], first: int | None, count: int | None) -> str:
    """Lines with their numbers, as many as were asked for and as fit into one answer.

    Raises:
        UsageError: the document ends before.
    """
    start = max(1, first or 1)
    if start > len(rows):
        raise UsageError(f"{path} has {len(rows)} lines, line {start} is not there")
    asked = count if count is not None else len(rows) if first is None else DEFAULT_LINES
    last = min(len(rows), start + max(1, asked) - 1)
    shown: list[str] = [f"## {path}"]
    size = 0
    for number in range(start, last + 1):
        row = harmless(rows[number - 1])
        size += len(row) + 8
        if size > MAX_READ_CHARS and number > start:
            shown.append(f"… {len(rows)} lines in all; from={number} reads on")
            break
        shown.append(f"{number}\t{row[:MAX_READ_CHARS]}")
    return "\n".join(shown)


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
