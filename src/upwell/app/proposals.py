"""Carries out a person's answers to proposals and reviews, for the command line and the
dashboard."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from upwell.app.store import StoreApp
from upwell.capture.inbox import Inbox, Proposal
from upwell.ground.errors import StoreError
from upwell.ground.types.memory import Memory
from upwell.memory.base import Added
from upwell.surface.guards import is_guard
from upwell.surface.scopes import PAUSED, replaced_among, scope_of, standing


async def accept(
    app: StoreApp, inbox: Inbox, proposals: Sequence[Proposal], texts: Sequence[str] | None = None
) -> tuple[list[Memory], list[Added]]:
    """Store proposals as memories, with the edited `texts` if there are any. A rule becomes a
    standing rule, because a person now vouches for it.

    Raises:
        UsageError: a text is empty, or the tenant has too many memories.
        StoreError: nothing was stored, or the stored proposals are still in the inbox.
    """
    memories = [
        replace(_memory_of(proposal), text=text)
        for proposal, text in zip(
            proposals, texts or [item.text for item in proposals], strict=True
        )
    ]
    added = await app.memory.add_many(memories)
    inbox.take([item.id for item in proposals])
    return memories, added


async def reword(app: StoreApp, memory: Memory, text: str) -> Added:
    """Change the text of a memory. Its files and symbols are extracted again from the text, unless
    it is an episode or a rule with a scope.

    Raises:
        UsageError: the text is empty, or the memory comes from a file.
    """
    changed = replace(memory, text=text, updated_at=None)
    if not changed.triggers:
        changed = replace(changed, paths=(), symbols=())
    return await app.memory.update(changed)


async def change_rule(app: StoreApp, rule_id: str, change: Callable[[Memory], Memory]) -> Memory:
    """Change a standing rule.

    Raises:
        StoreError: there is no such rule.
    """
    rule = await app.memory.get(rule_id)
    if rule is None or not rule.pinned:
        raise StoreError(f"no standing rule {rule_id!r}", hint="`upwell rules` lists them")
    updated = change(rule)
    await app.memory.update(updated)
    return updated


def paused(rule: Memory) -> Memory:
    """The rule with a tag that keeps it from surfacing."""
    return replace(rule, tags=tuple(dict.fromkeys((*rule.tags, PAUSED))))


def resumed(rule: Memory) -> Memory:
    """The rule without the tag that pauses it."""
    return replace(rule, tags=tuple(tag for tag in rule.tags if tag != PAUSED))


def described_rules(rules: Sequence[Memory]) -> list[dict[str, Any]]:
    """The rules as JSON, like `described_rule()`. `replaced` is true for a rule that another rule
    replaces."""
    replaced = replaced_among(rules)
    return [{**described_rule(rule), "replaced": rule.id in replaced} for rule in rules]


def described_rule(rule: Memory) -> dict[str, Any]:
    """A rule as JSON: `upwell rules --json`."""
    scope = scope_of(rule)
    return {
        "id": rule.id,
        "text": rule.text,
        "project": rule.project,
        "paths": list(scope.paths),
        "tools": list(scope.tools),
        "guard": is_guard(rule),
        "paused": PAUSED in rule.tags,
    }


def _memory_of(proposal: Proposal) -> Memory:
    memory = proposal.memory()
    return standing(memory, scope_of(memory)) if proposal.kind == "rule" else memory
