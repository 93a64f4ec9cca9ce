"""upwell's own MCP resources: topics, searches and memories at `upwell://` addresses.

A memory that the reader's project or principal may not see is treated as missing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import unquote_plus

from upwell.ground.errors import UsageError
from upwell.ground.names import MEMORY_URI, TOPICS_URI, memory_id, memory_uri, topic_uri
from upwell.ground.text.words import iso
from upwell.ground.types.memory import Memory
from upwell.ground.types.rpc import OWNER, Principal
from upwell.memory.ranking.scoring import SUPERSEDED
from upwell.memory.topics import Topic
from upwell.surface.render import citation, preview
from upwell.tools.recall import ToolMemories, Viewed, seen, view_nothing
from upwell.wire.rawjson import dumps

SEARCH_URI = "upwell://search/"
JSON = "application/json"
SEARCH_LIMIT = 20
MAX_TOPICS = 200
MAX_MEMORIES = 200
PREVIEW_CHARS = 200


class Topical(Protocol):
    async def all(
        self, project: str | None = None, namespaces: Sequence[str] = ()
    ) -> list[Topic]: ...

    async def about(
        self, topic: str, project: str | None = None, namespaces: Sequence[str] = ()
    ) -> list[str]: ...


class Resources:
    """The resources that one project and one principal may see."""

    def __init__(
        self,
        memories: ToolMemories,
        topics: Topical,
        project: str | None,
        principal: Principal = OWNER,
        *,
        viewed: Viewed = view_nothing,
    ) -> None:
        self._memories = memories
        self._topics = topics
        self._project = project
        self._principal = principal
        self._viewed = viewed

    def listed(self) -> list[dict[str, Any]]:
        return [
            {
                "uri": TOPICS_URI,
                "name": "topics",
                "title": "Memory topics",
                "description": "The topics of memories, with the number of memories in each.",
                "mimeType": JSON,
            }
        ]

    def templates(self) -> list[dict[str, Any]]:
        return [
            {
                "uriTemplate": f"{prefix}{{{variable}}}",
                "name": name,
                "description": description,
                "mimeType": JSON,
            }
            for prefix, variable, name, description in (
                (f"{TOPICS_URI}/", "topic", "topic", "The memories with a topic."),
                (SEARCH_URI, "query", "search", "The memories relevant to a query."),
                (MEMORY_URI, "id", "memory", "One memory in full."),
            )
        ]

    async def read(self, uri: str) -> Sequence[Mapping[str, Any]]:
        """Raises UsageError if there is no resource at this address, and UpwellError if a store of
        memories cannot be read or searched."""
        if uri == TOPICS_URI:
            topics = await self._topics.all(self._project, self._principal.namespaces)
            body = {"count": len(topics), "topics": [*map(described, topics[:MAX_TOPICS])]}
        elif uri.startswith(f"{TOPICS_URI}/"):
            body = await self._topic(unquote_plus(uri.removeprefix(f"{TOPICS_URI}/")))
        elif uri.startswith(SEARCH_URI):
            body = await self._search(unquote_plus(uri.removeprefix(SEARCH_URI)).strip())
        elif uri.startswith(MEMORY_URI):
            body = await self._memory(memory_id(uri))
        else:
            raise UsageError(f"no resource {uri!r}", hint=f"{TOPICS_URI} lists the topics")
        return [{"uri": uri, "mimeType": JSON, "text": dumps(body).decode()}]

    async def _topic(self, topic: str) -> dict[str, Any]:
        ids = await self._topics.about(topic, self._project, self._principal.namespaces)
        if not ids:
            raise UsageError(f"no topic {topic!r}", hint=f"{TOPICS_URI} lists them")
        entries = [await self._memories.get(memory_id) for memory_id in ids[:MAX_MEMORIES]]
        memories = [brief(memory) for memory in entries if memory is not None]
        namespaces = sorted({memory["namespace"] for memory in memories})
        return {
            "topic": topic,
            "memory_count": len(ids),
            "namespaces": namespaces,
            "memories": memories,
        }

    async def _search(self, query: str) -> dict[str, Any]:
        if not query:
            raise UsageError("a search needs a query", hint=f"{SEARCH_URI}words%20to%20find")
        result = await self._memories.find(
            query,
            limit=SEARCH_LIMIT,
            project=self._project,
            namespaces=self._principal.namespaces,
        )
        await self._viewed([hit.memory for hit in result.hits])
        memories = [
            {
                **brief(hit.memory, query),
                "score": round(hit.score, 4),
                "superseded": bool(hit.signals.get(SUPERSEDED)),
            }
            for hit in result.hits
        ]
        return {"query": query, "count": len(result.hits), "memories": memories}

    async def _memory(self, memory_id: str) -> dict[str, Any]:
        memory = await seen(self._memories, memory_id, self._project, self._principal)
        if memory is None:
            raise UsageError(f"no memory {memory_id!r}", hint="the memory may have been deleted")
        await self._viewed([memory])
        return {
            "id": memory.id,
            "text": memory.text,
            "namespace": memory.namespace,
            "tags": list(memory.tags),
            "paths": list(memory.paths),
            "symbols": list(memory.symbols),
            "triggers": list(memory.triggers),
            "occurrences": memory.occurrences,
            "project": memory.project,
            "source": memory.source,
            "lines": list(memory.lines) if memory.lines else None,
            "citation": citation(memory),
            "trust": str(memory.trust),
            "pinned": memory.pinned,
            "supersedes": memory.supersedes,
            "created_at": iso(memory.created_at),
            "updated_at": iso(memory.updated_at),
            "expires_at": iso(memory.expires_at),
        }


def described(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "memory_count": topic.memory_count,
        "namespaces": list(topic.namespaces),
        "uri": topic_uri(topic.name),
    }


def brief(memory: Memory, query: str = "") -> dict[str, Any]:
    """The preview shows the memory's beginning, or what matches `query`."""
    return {
        "id": memory.id,
        "namespace": memory.namespace,
        "tags": list(memory.tags),
        "content_preview": preview(memory.text, [query] if query else (), PREVIEW_CHARS),
        "citation": citation(memory),
        "uri": memory_uri(memory.id),
    }
