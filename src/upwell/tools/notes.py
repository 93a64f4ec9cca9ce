"""The tools for short-term notes: `add_memory`, `search_memory` and `delete_memory`.

Status lines such as "STM entry added" appear only if the environment variable `STM_SHOW_STATUS` is
`TRUE`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from upwell.ground.errors import RecallError, UsageError
from upwell.ground.text.anchors import paths_in
from upwell.ground.text.words import iso, jaccard, terms
from upwell.ground.types.memory import Memory, Trust
from upwell.ground.types.rpc import OWNER, Principal
from upwell.memory.notes import GENERAL, KINDS, Origin, checked_labels
from upwell.memory.records import namespace as checked_namespace
from upwell.memory.stm import ShortTerm, StmEntry
from upwell.surface.render import preview
from upwell.tools.base import READ_ONLY, WRITES, Result, Tool, text_result
from upwell.tools.recall import ToolMemories
from upwell.wire.rawjson import dumps

ADDED = "STM entry added"
DELETED = "STM entry deleted"
NOTHING_FOUND = "No matching STM entries found"
NO_FILE = "the note mentions no file; notes about files are found again by their `paths`"
ALIKE = 0.6
"""Two notes whose words have at least this Jaccard index are near duplicates."""
MAX_ALIKE = 3
_MAX_COMPARED = 8
_COMPARED_CHARS = 4_000
_SHOWN_CHARS = 200
_SEARCH_SECONDS = 1.0
_TEXTS = {"type": "array", "items": {"type": "string"}}


async def alike(
    memories: ToolMemories, project: str | None, principal: Principal, text: str
) -> Sequence[Memory]:
    """Find the memories that say nearly the same as `text`. If the search fails, return none."""
    try:
        result = await memories.find(
            text[:_COMPARED_CHARS],
            limit=_MAX_COMPARED,
            project=project,
            namespaces=principal.namespaces,
            seconds=_SEARCH_SECONDS,
        )
    except RecallError:
        return ()
    words = set(terms(text))
    near = [
        hit.memory for hit in result.hits if jaccard(words, set(terms(hit.memory.text))) >= ALIKE
    ]
    return near[:MAX_ALIKE]


def add_tool(
    notes: ShortTerm,
    project: str | None,
    principal: Principal = OWNER,
    *,
    status: bool,
    alike: Callable[[str], Awaitable[Sequence[Memory]]] | None = None,
    read_only: Sequence[str] = (),
) -> Tool:
    """`add_memory(content, namespace?, paths?, tags?, kind?)`. A note belongs to the project, and
    is labelled as an agent's note when it surfaces. `status` adds a status line to the result. Only
    an admin may add notes to the namespaces in `read_only`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        labels, label_rules = checked_labels(args)
        if (stored := principal.stored(labels.place)) != labels.place:
            labels = replace(labels, namespace=checked_namespace(stored))
        _check_writable(labels.place, principal, read_only)
        origin = Origin(project=project, trust=Trust.AGENT, session=session)
        content = args["content"]
        near = await alike(content) if alike else ()
        entry, rules = await asyncio.to_thread(notes.add, content, origin, labels)
        masked = dict.fromkeys((*rules, *label_rules))
        lines = [entry.id]
        lines += [f"a secret was masked before it was stored ({rule})" for rule in masked]
        remarks = [
            f"a similar memory is already stored: {memory.id}: "
            f"{preview(memory.text, (), _SHOWN_CHARS)}"
            for memory in near
        ]
        remarks += await asyncio.to_thread(_missing, entry, project)
        return _result(notes, lines, "\n".join(remarks), ADDED if status else "")

    return Tool(
        name="add_memory",
        description=(
            "Store a short note for later work: a decision and its reason, a pitfall, a "
            "preference. One subject per note, understandable by itself, naming the files "
            "concerned. Returns its id, and any notes that say nearly the same. A note that "
            f"nobody reads expires after {notes.options.retention_days} days."
        ),
        properties={
            "content": {"type": "string"},
            "namespace": {
                "type": "string",
                "description": "decisions, patterns, learnings, blockers …; `kind` chooses one.",
            },
            "paths": {**_TEXTS, "description": "The files that the note is about."},
            "tags": _TEXTS,
            "kind": {"type": "string", "enum": list(KINDS)},
        },
        required=("content",),
        annotations=WRITES,
        run=run,
    )


def search_tool(
    notes: ShortTerm, project: str | None, principal: Principal = OWNER, *, status: bool
) -> Tool:
    """`search_memory(query?, id?, date?)`: the best notes in full, at most `stm.max_results`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        filters = {name: args.get(name) for name in ("query", "id", "date")}
        notes_found = await asyncio.to_thread(
            lambda: notes.search(**filters, project=project, namespaces=principal.namespaces)
        )
        shown = dumps(described(notes_found)).decode()
        return _result(notes, [shown], NOTHING_FOUND if status and not notes_found else "")

    return Tool(
        name="search_memory",
        description=(
            "Search the short notes of earlier work, when you lack context to understand the "
            "task or to answer. Pass descriptive keywords, the id of a note, or the day of its "
            f"creation; several conditions combine. Returns the {notes.options.most} best notes "
            "in full: those with the whole phrase first, then those with every word, then by "
            "number of occurrences, then newest first. A note that is found stays; one that nobody "
            f"finds expires after {notes.options.retention_days} days."
        ),
        properties={
            "query": {"type": "string", "description": "Keywords in the note."},
            "id": {"type": "string"},
            "date": {"type": "string", "description": "Day of creation in UTC, YYYY-MM-DD."},
        },
        annotations=READ_ONLY,
        run=run,
    )


def _check_writable(namespace: str, principal: Principal, read_only: Sequence[str]) -> None:
    if not principal.sees(namespace):
        raise UsageError(
            f"the namespace {namespace!r} is not available to you",
            hint="ask an admin of this memory for access",
        )
    if not principal.may_write_to(namespace, read_only):
        raise UsageError(
            f"the namespace {namespace!r} is read-only for you",
            hint="an admin of this memory can change it",
        )


def delete_tool(
    notes: ShortTerm,
    project: str | None,
    principal: Principal = OWNER,
    *,
    status: bool,
    read_only: Sequence[str] = (),
) -> Tool:
    """`delete_memory(id)`"""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        note_id = args["id"].strip()
        seen: dict[str, Any] = {"project": project, "namespaces": principal.namespaces}
        place = await asyncio.to_thread(notes.place_of, note_id, **seen)
        if place is not None:
            _check_writable(place, principal, read_only)
        if not await asyncio.to_thread(notes.delete, note_id, **seen):
            raise UsageError(f"no note has the id {note_id!r}", hint="memory_search finds ids")
        return _result(notes, [note_id], DELETED if status else "")

    return Tool(
        name="delete_memory",
        description=(
            "Delete a short note by its id, when it is wrong or no longer needed. Notes that "
            f"nobody reads expire by themselves after {notes.options.retention_days} days."
        ),
        properties={"id": {"type": "string"}},
        required=("id",),
        annotations={**WRITES, "destructiveHint": True},
        run=run,
    )


def described(entries: Sequence[StmEntry]) -> list[dict[str, Any]]:
    """With the same keys as in `stm.json`."""
    return [
        {
            "id": entry.id,
            "content": entry.content,
            "created_at": iso(entry.created_at),
            "viewed_at": iso(entry.viewed_at),
            **entry.labels.keys(),
        }
        for entry in entries
    ]


def moved(notes: ShortTerm) -> str:
    """If `stm.json` could not be read and was moved aside, return a notice, but only once."""
    moved_path = notes.file.take_report()
    if not moved_path:
        return ""
    return f"stm.json could not be read; it was moved to {moved_path}, and a new file was started"


def _missing(entry: StmEntry, project: str | None) -> list[str]:
    """Return a remark if the note mentions no file, or a file that does not exist. Such a note is
    hard to find and to verify later. Notes of a kind in `GENERAL` need no file.
    """
    paths = entry.labels.paths or paths_in(entry.content)
    if not paths:
        return [] if entry.labels.kind in GENERAL else [NO_FILE]
    absent = [path for path in paths if project and not _may_exist(path, project)]
    return [f"no such file in this project: {', '.join(absent)}"] if absent else []


def _may_exist(path: str, project: str) -> bool:
    """Globs and paths outside the project are not checked but assumed to exist."""
    file = os.path.normpath(os.path.join(project, path))
    if not file.startswith(project + os.sep) or "*" in path or not os.path.isdir(project):
        return True
    return os.path.lexists(file)


def _result(notes: ShortTerm, lines: Sequence[str], *others: str) -> Result:
    return text_result("\n".join(lines), *filter(None, (moved(notes), *others)))
