"""The dashboard's page about memory. First the actions behind its buttons (`CHANGES`); an action
with a counterpart on the command line calls the same function. Then what it shows: search and
browse, one memory, the inbox, the rules, the review and the trash.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict, replace

from upwell.app.review import (
    RemovalOffer,
    RemovalReason,
    accept,
    change_rule,
    described_rule,
    described_rules,
    paused,
    resumed,
    reword,
)
from upwell.app.wiring import App
from upwell.episodes.triggers import in_words
from upwell.ground.errors import UsageError
from upwell.ground.types.cue import Feedback, Rating
from upwell.ground.types.memory import Hit, Memory, Provenance, Scope, Trust
from upwell.memory.lookups import counted, stemmer
from upwell.memory.ranking.terms import query_words
from upwell.surface.render import citation
from upwell.surface.rules import PAUSED, checked_scope, standing
from upwell.tools.feedback import noted
from upwell.web.dashboard.routes import Fields

Change = Callable[[App, Fields], Awaitable[str]]
RELOAD = "reload the page"


async def remember(app: App, fields: Fields) -> str:
    memory = Memory(
        text=fields.get("text", ""),
        namespace=fields.get("namespace", "context"),
        project=fields.get("project"),
        provenance=Provenance(door="dashboard"),
    )
    added = await app.memory.add(memory)
    return _with_masked("Remembered.", added.redacted)


async def edit(app: App, fields: Fields) -> str:
    memory = await _memory(app, fields)
    added = await reword(app, memory, fields.get("text", ""))
    return _with_masked("Saved.", added.redacted)


async def pin(app: App, fields: Fields) -> str:
    await app.memory.update(standing(await _memory(app, fields)))
    return "Pinned: every session opens with it."


async def unpin(app: App, fields: Fields) -> str:
    memory = await _memory(app, fields)
    await app.memory.update(replace(memory, pinned=False, triggers=()))
    return "No longer a standing rule."


async def scope(app: App, fields: Fields) -> str:
    """Move a memory to another project or to all projects, and limit a rule to files and tools."""
    memory = replace(await _memory(app, fields), project=fields.get("project"))
    if memory.pinned:
        paths, tools = (fields.get(name, "").split() for name in ("paths", "tools"))
        patterns = checked_scope(paths, tools)
        memory = replace(memory, triggers=patterns.triggers())
    await app.memory.update(memory)
    return f"Now for {memory.project or 'every project'}."


async def supersede(app: App, fields: Fields) -> str:
    old = await _memory(app, fields)
    newer = Memory(
        text=fields.get("text", ""),
        namespace=old.namespace,
        tags=old.tags,
        project=old.project,
        pinned=old.pinned,
        triggers=old.triggers if old.pinned else (),
        supersedes=old.id,
        provenance=Provenance(door="dashboard"),
    )
    added = await app.memory.add(newer)
    return _with_masked("Replaced: only the newer one will surface.", added.redacted)


async def forget(app: App, fields: Fields) -> str:
    memory = await _memory(app, fields)
    if not await app.forget(memory.id, for_good=False):
        raise _gone()
    return "Moved to the trash; it stays there for 30 days."


async def restore(app: App, fields: Fields) -> str:
    if not await app.memory.restore(fields.get("id", "")):
        raise UsageError("the trash no longer has this memory", hint=RELOAD)
    return "Restored."


async def keep_proposal(app: App, fields: Fields) -> str:
    inbox = app.inbox()
    proposals = inbox.chosen([fields.get("id", "")])
    texts = [fields["text"]] if "text" in fields else None
    _, added = await accept(app, inbox, proposals, texts)
    return _with_masked("Kept.", added[0].redacted)


async def drop_proposal(app: App, fields: Fields) -> str:
    inbox = app.inbox()
    inbox.take([item.id for item in inbox.chosen([fields.get("id", "")])])
    return "Dropped; it will not be proposed again."


async def ban_proposal(app: App, fields: Fields) -> str:
    inbox = app.inbox()
    inbox.ban(inbox.chosen([fields.get("id", "")]))
    return "Dropped, along with everything that says the same."


async def switch_rule(app: App, fields: Fields, *, on: bool) -> str:
    await change_rule(app, fields.get("id", ""), resumed if on else paused)
    return "Resumed." if on else "Paused."


async def keep_offer(app: App, fields: Fields) -> str:
    reason = fields.get("reason", "")
    if reason not in list(RemovalReason):
        raise UsageError(
            f"{reason!r} is not a reason", hint=f"use one of {', '.join(RemovalReason)}"
        )
    await app.review().decline(RemovalOffer(await _memory(app, fields), RemovalReason(reason), ""))
    return "Kept; it will not be offered again for this reason."


async def remove_offer(app: App, fields: Fields) -> str:
    await app.review().remove(await _memory(app, fields))
    return "Moved to the trash."


async def rate(app: App, fields: Fields) -> str:
    rating = fields.get("rating", "")
    if rating not in list(Rating):
        raise UsageError(f"{rating!r} is not a rating", hint=f"use one of {', '.join(Rating)}")
    feedback = Feedback(
        surfacing_id=fields.get("id", ""), rating=Rating(rating), memory_id=fields.get("memory")
    )
    return noted(await app.surfacer.ratings.rate(feedback))


async def switch(app: App, fields: Fields, *, on: bool) -> str:
    if on:
        app.pause.end(None)
        return "upwell is on."
    app.pause.begin(None)
    return "upwell is off: calls pass through untouched."


async def tune(app: App, fields: Fields) -> str:
    await app.budgets.ask()
    await app.learning.learned.apply()
    return "Learned values are in use."


CHANGES: Mapping[str, Change] = {
    "remember": remember,
    "memory/edit": edit,
    "memory/pin": pin,
    "memory/unpin": unpin,
    "memory/scope": scope,
    "memory/supersede": supersede,
    "memory/forget": forget,
    "memory/restore": restore,
    "inbox/keep": keep_proposal,
    "inbox/drop": drop_proposal,
    "inbox/never": ban_proposal,
    "rules/pause": partial(switch_rule, on=False),
    "rules/resume": partial(switch_rule, on=True),
    "review/keep": keep_offer,
    "review/remove": remove_offer,
    "rate": rate,
    "on": partial(switch, on=True),
    "off": partial(switch, on=False),
    "tune": tune,
}
"""The actions, keyed by their names in the URL path. `desk_of()` adds those of `now.py`."""


async def _memory(app: App, fields: Fields) -> Memory:
    memory = await app.memory.get(fields.get("id", ""))
    if memory is None:
        raise _gone()
    return memory


def _gone() -> UsageError:
    return UsageError("this memory no longer exists", hint=RELOAD)


def _with_masked(message: str, rules: tuple[str, ...]) -> str:
    return f"{message} A secret was masked ({', '.join(rules)})." if rules else message


SHOWN = 40
MAX_LOOKED_AT = 20_000
LOOKED_AT = 5_000
"""How many of the latest surfacings are searched to count how often a memory surfaced. Older ones
count only if the use of the memory was judged.
"""
MAX_RULES = 500
MIN_RULE_SHARE = 0.5
"""A search finds a standing rule that contains at least this share of the query's words."""
MAX_OFFERS = 100
_BATCH = 500
_OPTIONS_FROM = 500
_MAX_TOPICS = 60
KINDS = {
    "rule": "standing rules",
    "episode": "learned from sessions",
    "user": "written by you",
    "agent": "written by agents",
    "imported": "imported",
}


async def memory(app: App, fields: Fields) -> Mapping[str, Any]:
    """The first matching memories, and the values for the filters."""
    sample = await app.memory.list(limit=_OPTIONS_FROM)
    topics = await app.topics.all()
    return {
        **await memories(app, fields),
        "kinds": KINDS,
        "projects": sorted({item.project for item in sample if item.project}),
        "namespaces": sorted({item.namespace for item in sample}),
        "topics": [topic.name for topic in topics[:_MAX_TOPICS]],
        "waiting": len(app.inbox().waiting()),
        "is_empty": not sample,
    }


async def memories(app: App, fields: Fields) -> Mapping[str, Any]:
    """One page of the matching memories. A search lists the standing rules first, and then its
    hits, most relevant first. Without a search, the newest memories come first."""
    offset = int(fields["offset"]) if fields.get("offset", "").isdigit() else 0
    if "q" in fields:
        hits, following = await _found(app, fields), None
    else:
        hits, following = await _listed(app, fields, offset)
    old = await app.memory.store.superseded([hit.memory.id for hit in hits])
    return {"rows": [_row(hit, old) for hit in hits], "next": following}


async def detail(app: App, fields: Fields) -> Mapping[str, Any]:
    """One memory: its text, where it comes from, and what became of it.

    Raises:
        UsageError: there is no such memory.
    """
    memory_id = fields.get("id", "")
    deleted = [m for m in await app.memory.store.trash(limit=MAX_RULES) if m.id == memory_id]
    found = await app.memory.get(memory_id) or (deleted[0] if deleted else None)
    if found is None:
        raise UsageError("this memory no longer exists", hint="reload the list")
    uses = [s.sample for s in await app.learning.sightings() if s.sample.memory == found.id]
    # The use of a memory is judged some steps later, so the latest surfacings are not in `uses`.
    latest = await app.surfacer.journal.latest(LOOKED_AT, matching={"outcome": "surfaced"})
    surfacing_ids = {event["id"] for event in latest if found.id in dict(event["memories"])}
    surfacing_ids |= {sample.surfacing for sample in uses}
    superseded = await app.memory.store.superseded([found.id])
    is_stored = await app.memory.store.get(found.id) is not None
    return {
        "memory": found,
        "citation": citation(found),
        "is_stored": is_stored,
        "in_trash": not is_stored and bool(deleted),
        "rule": described_rule(found) if found.pinned else None,
        "triggers": [in_words(trigger) for trigger in found.triggers if not found.pinned],
        "successor": superseded.get(found.id),
        "said": len(surfacing_ids),
        "used": sum(sample.evidence == "used" for sample in uses),
        "can_pin": found.trust not in (Trust.AGENT, Trust.TOOL),
    }


async def inbox(app: App, fields: Fields) -> Mapping[str, Any]:
    """The proposals that wait for a decision, newest first."""
    waiting = app.inbox().waiting()
    rows = [
        {
            "id": item.id,
            **asdict(item),
            "kind": item.kind,
            "said_when": in_words(item.triggers[0]) if item.triggers else "",
        }
        for item in reversed(waiting)
    ]
    return {"rows": rows[:SHOWN], "count": len(rows)}


async def rules(app: App, fields: Fields) -> Mapping[str, Any]:
    pinned = await app.memory.store.pinned(Scope(), limit=MAX_RULES)
    return {"rows": described_rules(pinned)}


async def review(app: App, fields: Fields) -> Mapping[str, Any]:
    """The memories offered for removal, each with its reason."""
    offers = await app.review().offers(None)
    return {"rows": [offer.described() for offer in offers[:MAX_OFFERS]], "count": len(offers)}


async def trash(app: App, fields: Fields) -> Mapping[str, Any]:
    """The deleted memories that can be restored."""
    deleted = await app.memory.store.trash(limit=MAX_OFFERS)
    return {"rows": [_row(Hit(memory=item, score=0.0), {}) for item in deleted]}


async def _found(app: App, fields: Fields) -> list[Hit]:
    query = fields["q"][:2_000]
    scope = Scope(
        project=fields.get("project"),
        namespaces=(fields["namespace"],) if "namespace" in fields else (),
    )
    hits = await app.memory.search(
        query, limit=SHOWN, project=scope.project, namespaces=scope.namespaces
    )
    rules = await app.memory.store.pinned(scope, limit=MAX_RULES)
    found = [*await asyncio.to_thread(_rules_with, rules, query), *hits]
    return [hit for hit in found if _matches(hit.memory, fields)][:SHOWN]


def _rules_with(rules: Sequence[Memory], query: str) -> list[Hit]:
    """The standing rules that share enough words with the query, starting with those that share the
    most. A search in a store does not return rules."""
    wanted = set(stemmer().stems(query_words(query)))
    shares = {
        rule.id: len(wanted & counted(" ".join((rule.text, *rule.triggers))).keys()) / len(wanted)
        for rule in rules
        if wanted
    }
    found = [rule for rule in rules if shares.get(rule.id, 0.0) >= MIN_RULE_SHARE]
    found.sort(key=lambda rule: -shares[rule.id])
    return [Hit(memory=rule, score=0.0) for rule in found]


async def _listed(app: App, fields: Fields, offset: int) -> tuple[list[Hit], int | None]:
    """The newest matching memories from `offset` on, and the offset of the next page."""
    found: list[Hit] = []
    names = [fields["namespace"]] if "namespace" in fields else ()
    end, narrowing = offset + MAX_LOOKED_AT, {"kind", "topic", "source", "project"}
    while offset < end:
        size = _BATCH if narrowing & fields.keys() else SHOWN
        batch = await app.memory.list(
            project=fields.get("project"), namespaces=names, limit=size, offset=offset
        )
        for item in batch:
            offset += 1
            if _matches(item, fields):
                found.append(Hit(memory=item, score=0.0))
            if len(found) == SHOWN:
                return found, offset
        if len(batch) < size:
            return found, None
    return found, offset


def _matches(memory: Memory, fields: Fields) -> bool:
    topic, source = fields.get("topic", "").lower(), fields.get("source", "").lower()
    project = fields.get("project")
    origin = f"{memory.source} {memory.provenance.door} {memory.provenance.tool}".lower()
    return (
        (not project or memory.project == project)
        and _is_kind(memory, fields.get("kind", ""))
        and source in origin
        and (not topic or topic in memory.text.lower() or topic in map(str.lower, memory.tags))
    )


def _is_kind(memory: Memory, kind: str) -> bool:
    if not kind:
        return True
    if kind == "rule":
        return memory.pinned
    if kind == "episode":
        return bool(memory.triggers) and not memory.pinned
    return str(memory.trust) == kind and not memory.pinned and not memory.triggers


def _row(hit: Hit, superseded: Mapping[str, str]) -> dict[str, Any]:
    memory = hit.memory
    marks: Sequence[tuple[str, bool]] = (
        ("standing rule", memory.pinned),
        ("paused", memory.pinned and PAUSED in memory.tags),
        ("from a session", bool(memory.triggers) and not memory.pinned),
        ("superseded", memory.id in superseded),
        ("expires", memory.expires_at is not None),
        ("by an agent", memory.trust is Trust.AGENT),
        ("imported", memory.trust is Trust.IMPORTED),
    )
    return {
        "id": memory.id,
        "text": memory.text,
        "namespace": memory.namespace,
        "project": memory.project,
        "source": memory.source,
        "created_at": memory.created_at,
        "score": hit.score,
        "marks": [name for name, is_marked in marks if is_marked],
    }
