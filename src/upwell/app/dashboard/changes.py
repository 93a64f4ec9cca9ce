"""The actions behind the dashboard's buttons. An action with a counterpart on the command line
calls the same function."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from msgspec.structs import replace

from upwell.app.review import (
    RemovalOffer,
    RemovalReason,
    accept,
    change_rule,
    paused,
    resumed,
    reword,
)
from upwell.app.wiring import App
from upwell.ground.errors import UsageError
from upwell.ground.types.cue import Feedback, Rating
from upwell.ground.types.memory import Memory, Provenance
from upwell.surface.rules import checked_scope, standing
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
"""The actions, keyed by their names in the URL path. `desk_of()` adds those of `health.py`."""


async def _memory(app: App, fields: Fields) -> Memory:
    memory = await app.memory.get(fields.get("id", ""))
    if memory is None:
        raise _gone()
    return memory


def _gone() -> UsageError:
    return UsageError("this memory no longer exists", hint=RELOAD)


def _with_masked(message: str, rules: tuple[str, ...]) -> str:
    return f"{message} A secret was masked ({', '.join(rules)})." if rules else message
