"""What a person decides about memories, for the command line and the dashboard: accepts proposals,
rewords memories, changes and pauses rules. Then `Review`: the memories that a person may want to
remove, each with its reason.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.app.store import StoreApp
from upwell.capture.inbox import Inbox, Proposal
from upwell.ground.errors import StoreError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.text.words import counted, jaccard, terms
from upwell.ground.types.memory import Memory, Trust
from upwell.learn.feedback import MemoryUse
from upwell.memory.base import Added
from upwell.memory.library import Library
from upwell.memory.stm import ShortTerm
from upwell.surface.learning import Learning
from upwell.surface.lessons import lack_of
from upwell.surface.rules import PAUSED, is_guard, replaced_among, scope_of, standing


async def accept(
    app: StoreApp, inbox: Inbox, proposals: Sequence[Proposal], texts: Sequence[str] | None = None
) -> tuple[list[Memory], list[Added]]:
    """Store proposals as memories, with the edited `texts` if there are any. A rule becomes a
    standing rule, because a person now vouches for it.

    Raises:
        UsageError: a text is empty, or the tenant has too many memories.
        StoreError: nothing was stored, or the stored proposals are still in the inbox.
    """
    memories = []
    for proposal, text in zip(proposals, texts or [item.text for item in proposals], strict=True):
        memory = replace(proposal.memory(), text=text)
        is_rule = proposal.kind == "rule"
        memories.append(standing(memory, scope_of(memory)) if is_rule else memory)
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


async def rule_of(app: StoreApp, rule_id: str) -> Memory:
    """The standing rule with this id.

    Raises:
        StoreError: there is no such rule.
    """
    rule = await app.memory.get(rule_id)
    if rule is None or not rule.pinned:
        raise StoreError(f"no standing rule {rule_id!r}", hint="`upwell rules` lists them")
    return rule


async def change_rule(app: StoreApp, rule_id: str, change: Callable[[Memory], Memory]) -> Memory:
    """Change a standing rule. For errors, see `rule_of()`."""
    updated = change(await rule_of(app, rule_id))
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


MAX_REVIEWED = 20_000
MIN_SAID = 3
"""A memory that agents ignored this often and never used counts as useless."""
UNMATCHED_SECONDS = 30 * 86_400.0
NEARLY_THE_SAME = 0.8
KEPT_SECONDS = 400 * 86_400.0
_SHOWN_CHARS = 80


class RemovalReason(StrEnum):
    """Why a memory is offered for removal, in the order in which the person is asked."""

    CONTRADICTED = "contradicted"
    STALE = "stale"
    USELESS = "useless"
    DUPLICATE = "duplicate"
    UNMATCHED = "unmatched"


class RemovalOffer(Struct, frozen=True):
    """A memory that is offered for removal. `detail` is the evidence for the reason."""

    memory: Memory
    reason: RemovalReason
    detail: str

    def described(self) -> dict[str, str | None]:
        """The offer as JSON: `upwell inbox review --json`."""
        return {
            "id": self.memory.id,
            "reason": str(self.reason),
            "detail": self.detail,
            "text": self.memory.text,
            "project": self.memory.project,
        }


class Evidence(Struct, frozen=True, kw_only=True):
    """The recorded use of memories, keyed by memory id. `successors` gives the id of the memory
    that replaced a superseded one. `negatives` contains only memories that no longer surface by
    themselves, and gives the weight of their bad ratings. `uses` lists the verdicts on a memory's
    use, oldest first. `observed_since` is the time of the first verdict on any memory, or None.
    """

    successors: Mapping[str, str] = field(default_factory=dict)
    negatives: Mapping[str, float] = field(default_factory=dict)
    uses: Mapping[str, Sequence[MemoryUse]] = field(default_factory=dict)
    observed_since: float | None = None


class Review:
    """Offers memories for removal, and carries out the answers. The methods raise StoreError if the
    store or the inbox fails."""

    def __init__(
        self,
        library: Library,
        learning: Learning,
        ttl_store: TtlStore,
        inbox: Inbox,
        notes: ShortTerm,
    ) -> None:
        self._library = library
        self._learning = learning
        self._ttl_store = ttl_store
        self._inbox = inbox
        self._notes = notes

    async def offers(
        self, project: str | None, reason: RemovalReason | None = None
    ) -> list[RemovalOffer]:
        """The offers for the memories of a project (of all projects if None), at most one for each
        memory, ordered by reason. An offer that a person has declined is not made again for
        `KEPT_SECONDS`.
        """
        every = await self._library.list(project=project, limit=MAX_REVIEWED)
        memories = [item for item in every if project is None or item.project == project]
        offers = offers_among(memories, await self._evidence(memories), time.time())
        declined = {item.key for item in await self._ttl_store.scan(EntryKind.REVIEWED)}
        return [
            offer
            for offer in offers
            if reason in (None, offer.reason) and _key(offer) not in declined
        ]

    async def decline(self, offer: RemovalOffer) -> None:
        """Keep the memory, and do not offer it again for this reason for `KEPT_SECONDS`."""
        await self._ttl_store.put(EntryKind.REVIEWED, {_key(offer): b""}, ttl_seconds=KEPT_SECONDS)

    async def remove(self, memory: Memory, *, duplicates: bool = False) -> None:
        """Move the memory to the trash, and do not learn it again from sessions. With `duplicates`,
        do not learn its duplicates either.
        """
        await self._library.delete(memory.id)
        forget_for_good(self._inbox, memory, duplicates=duplicates)

    async def _evidence(self, memories: Sequence[Memory]) -> Evidence:
        sightings = await self._learning.sightings()
        uses: dict[str, list[MemoryUse]] = defaultdict(list)
        for sighting in sightings:
            if isinstance(sighting.sample.evidence, MemoryUse):
                uses[sighting.sample.memory].append(sighting.sample.evidence)
        await self._learning.learned.load_learned()
        return Evidence(
            successors=await self._library.store.superseded([item.id for item in memories]),
            negatives=self._learning.learned.demoted,
            uses=uses,
            observed_since=min((sighting.sample.at for sighting in sightings), default=None),
        )


def forget_for_good(inbox: Inbox, memory: Memory, *, duplicates: bool = False) -> None:
    """Never learn this memory again from sessions and commits, because a person has removed it.
    With `duplicates`, also never learn another memory with the same words, or another conclusion
    for the same situation.

    Raises:
        StoreError: the inbox failed.
    """
    if duplicates:
        proposal = Proposal(
            text=memory.text,
            source=memory.source,
            why=memory.provenance.tool,
            triggers=memory.triggers,
            project=memory.project,
        )
        inbox.ban([proposal])
    if memory.provenance.door == "capture":
        inbox.settle([memory.id])


def offers_among(memories: Sequence[Memory], evidence: Evidence, now: float) -> list[RemovalOffer]:
    """One offer for each memory that has a reason, ordered by reason and age."""
    texts = {memory.id: memory.text for memory in memories}
    copies = dict(near_duplicates(memories))
    later = dict(_replaced_episodes(memories))
    offers = []
    for memory in memories:
        if successor := evidence.successors.get(memory.id) or later.get(memory.id):
            reason = RemovalReason.CONTRADICTED
            detail = f"a newer memory says otherwise: {_short(texts.get(successor, successor))}"
        elif detail := _missing_parts(memory):
            reason = RemovalReason.STALE
        elif detail := _useless(memory, evidence):
            reason = RemovalReason.USELESS
        elif copy := copies.get(memory.id):
            reason = RemovalReason.DUPLICATE
            detail = f"nearly the same as {copy}: {_short(texts[copy])}"
        elif _is_unmatched(memory, evidence, now):
            reason = RemovalReason.UNMATCHED
            detail = "imported more than 30 days ago, and no session has needed it"
        else:
            continue
        offers.append(RemovalOffer(memory, reason, detail))
    order = list(RemovalReason)
    return sorted(
        offers,
        key=lambda offer: (order.index(offer.reason), offer.memory.created_at or 0.0),
    )


def near_duplicates(memories: Iterable[Memory]) -> Iterator[tuple[str, str]]:
    """Pairs of memories from one project and with the same triggers that say nearly the same thing.
    Each pair has the id to drop and the id to keep. A standing rule is kept in preference to any
    other memory; otherwise, the newer memory is kept.

    Two texts that share 80 % of their words also share a word among the rarest fifth of their
    words, so only those words are looked up (prefix filtering, Chaudhuri et al. 2006)."""
    ranked = sorted(memories, key=lambda memory: (memory.pinned, _age(memory)), reverse=True)
    words = {memory.id: frozenset(terms(memory.text)) for memory in ranked}
    holding: dict[str, int] = defaultdict(int)
    for own in words.values():
        for word in own:
            holding[word] += 1
    by_key: dict[tuple[str | None, tuple[str, ...], str], list[str]] = defaultdict(list)
    for memory in ranked:
        own = words[memory.id]
        rarest = sorted(own, key=lambda word: (holding[word], word))[: len(own) // 5 + 1]
        keys = [(memory.project, memory.triggers, word) for word in rarest]
        others = dict.fromkeys(other for key in keys for other in by_key[key])
        same = next((id for id in others if jaccard(own, words[id]) >= NEARLY_THE_SAME), None)
        if same is not None:
            yield memory.id, same
            continue
        for key in keys:
            by_key[key].append(memory.id)


def _replaced_episodes(memories: Iterable[Memory]) -> Iterator[tuple[str, str]]:
    """Pairs of ids: an episode, and a later one with a different text for the same situation."""
    newest: dict[tuple[str | None, str, tuple[str, ...]], Memory] = {}
    for memory in sorted(memories, key=_age):
        if not memory.triggers or memory.pinned:
            continue
        situation = (memory.project, memory.provenance.tool, memory.triggers)
        if situation in newest and newest[situation].text != memory.text:
            yield newest[situation].id, memory.id
        newest[situation] = memory


def _missing_parts(memory: Memory) -> str:
    """The files or symbols of a memory that no longer exist; "" if the memory still applies. An
    episode (a conclusion from a session) applies while all its files and symbols exist. Any other
    memory applies while one of its files exists."""
    if memory.project is None or not os.path.isabs(memory.project) or memory.pinned:
        return ""
    if not os.path.isdir(memory.project):
        return f"the folder {memory.project} is gone"
    if memory.triggers:
        return lack_of(memory, memory.project)
    paths = [path for path in memory.paths if not path.startswith(("/", "~", ".."))]
    if not paths or any(os.path.lexists(os.path.join(memory.project, path)) for path in paths):
        return ""
    return f"{', '.join(paths[:3])} {'is' if len(paths) == 1 else 'are'} gone"


def _useless(memory: Memory, evidence: Evidence) -> str:
    if memory.id in evidence.negatives:
        return "rated not relevant or already known, so it is no longer mentioned"
    uses = evidence.uses.get(memory.id, ())
    if memory.pinned or len(uses) < MIN_SAID or MemoryUse.USED in uses:
        return ""
    return f"mentioned {counted(len(uses), 'time')} and never used"


def _is_unmatched(memory: Memory, evidence: Evidence, now: float) -> bool:
    """True if an imported memory has not surfaced once in `UNMATCHED_SECONDS` of use."""
    began = evidence.observed_since
    return (
        memory.trust is Trust.IMPORTED
        and not memory.pinned
        and memory.id not in evidence.uses
        and began is not None
        and max(began, _age(memory)) < now - UNMATCHED_SECONDS
    )


def _age(memory: Memory) -> float:
    return max(memory.updated_at or 0.0, memory.created_at or 0.0)


def _key(offer: RemovalOffer) -> str:
    return f"{offer.reason}:{offer.memory.id}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 1]}…"
