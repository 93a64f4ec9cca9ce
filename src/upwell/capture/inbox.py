"""The inbox: proposed memories that a person has neither accepted nor rejected yet. Agents never
see them."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict, fields

from upwell.ground.errors import StoreUnwritable, UsageError
from upwell.ground.files import exclusively, read_regular_file, write_atomically, writing
from upwell.ground.project import is_own
from upwell.ground.secrets.redact import redact
from upwell.ground.types.memory import IMPORT, Memory, Provenance, Trust

MAX_WAITING = 1_000
"""The maximum number of open proposals per project. If there are more, the oldest are removed and
counted."""
MAX_SETTLED = 20_000
MAX_SEEN = 20
WHY_COMMIT = "a commit that says why"
WHY_RULE = "standing rule"
WHY_COMMAND = "command that worked"
_WORDS = re.compile(r"\w+")
HABIT_SESSIONS = 3
"""A mistake that was made in this many sessions counts as a habit."""
KINDS: Mapping[str, str] = {"commit": WHY_COMMIT, "rule": WHY_RULE, "command": WHY_COMMAND}


class Intake(Struct, frozen=True):
    """The result of adding proposals. `displaced` is the number of older proposals that were
    removed to make room. `redacted` contains the names of the rules that masked a secret.
    """

    new: int = 0
    displaced: int = 0
    redacted: tuple[str, ...] = ()


class Proposal(Struct, frozen=True, kw_only=True):
    """A possible memory. `source` is its origin, such as `git:3f2a1c0`, and `why` says how it was
    found. A proposal from an episode (a conclusion from a session) has `triggers`, the situations
    in which it applies. A proposal is valid while its `paths` exist and contain its `symbols`.
    `occurrences` counts the sessions that found it, and `seen` lists the latest of them, each with
    the time in it.
    """

    text: str
    source: str
    why: str
    namespace: str = "context"
    paths: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    occurrences: int = 1
    seen: tuple[tuple[str, float], ...] = ()
    project: str | None = None
    session: str = ""
    at: float | None = None

    @property
    def id(self) -> str:
        """An id, which is the same for equal texts in one project."""
        return _key("p", self.project or "", " ".join(self.text.lower().split()))

    @property
    def is_habit(self) -> bool:
        """Whether at least `HABIT_SESSIONS` sessions made the same mistake with a command. The user
        is then told how to make the correction a standing rule, which an agent gets before it can
        repeat the mistake."""
        return self.why == WHY_COMMAND and self.occurrences >= HABIT_SESSIONS

    @property
    def kind(self) -> str:
        """The kind of the proposal, for `upwell inbox --kind`."""
        return next((kind for kind, why in KINDS.items() if why == self.why), self.why)

    @property
    def duplicates(self) -> Iterator[str]:
        """The keys that this proposal shares with its duplicates: one for the same words in any
        project, and one for each situation in this project."""
        yield _key("w", *_WORDS.findall(self.text.lower()))
        for triggers in _situations(self.why, self.triggers):
            yield _key("t", self.project or "", self.why, *triggers)

    def memory(self, trust: Trust = Trust.USER) -> Memory:
        """Convert an accepted proposal to a memory. Pass another `trust` if upwell accepted the
        proposal without asking the user."""
        return Memory(
            id=self.id,
            text=self.text,
            namespace=self.namespace,
            paths=self.paths,
            symbols=self.symbols,
            triggers=self.triggers,
            occurrences=self.occurrences,
            project=self.project,
            source=self.source,
            provenance=Provenance(door="capture", tool=self.why, session=self.session),
            trust=trust,
            created_at=self.at,
            updated_at=self.at,
        )


Mask = Callable[[str], tuple[str, tuple[str, ...]]]
"""Masks the secrets in a text. Returns the masked text and the names of the rules that matched."""


class Inbox:
    """Proposals in a file (mode 0600) that all processes share. `mask` is applied to each text
    before it is written."""

    def __init__(self, path: Path, mask: Mask) -> None:
        self._path = path
        self._mask = mask

    def waiting(self) -> list[Proposal]:
        """Return the open proposals, oldest first."""
        return [_proposal(entry) for entry in self._read()["waiting"]]

    def displaced(self) -> Mapping[str, int]:
        """Return how many open proposals were removed from each project to make room."""
        displaced: dict[str, int] = self._read()["displaced"]
        return displaced

    def forget_displaced(self, project: str | None) -> int:
        """Reset the number of removed proposals for a project (None for all projects). Returns the
        old number, which the caller must tell the user.
        """
        with self._changing() as content:
            counts = content["displaced"]
            known = [name for name in counts if project is None or is_own(name, project)]
            number = sum(counts.pop(name) for name in known)
        return int(number)

    def propose(self, proposals: Iterable[Proposal]) -> Intake:
        """Add proposals, except those that a person has already decided about.

        Of two proposals with the same text or for the same situation, only the later one is kept.
        If they come from different sessions, their occurrences are added up. A session that was
        forked or copied repeats the times of the original, and counts only once.
        """
        new = 0
        redacted: dict[str, None] = {}
        with self._changing() as content:
            open_entries = {entry["id"]: entry for entry in content["waiting"]}
            settled = set(content["settled"])
            for proposal in proposals:
                entry = self._entry(proposal)
                if _is_settled(entry, settled):
                    continue
                redacted |= dict.fromkeys(self._mask(proposal.text)[1])
                earlier = _same_situation(entry, open_entries)
                new += earlier is None
                if earlier is not None:
                    entry = _later(open_entries.pop(earlier["id"]), entry)
                open_entries[entry["id"]] = entry
            content["waiting"], displaced = _latest_of_projects(list(open_entries.values()))
            content["displaced"] = dict(Counter(content["displaced"]) + displaced)
        return Intake(new, displaced.total(), tuple(redacted))

    def is_settled(self, proposal: Proposal) -> bool:
        """Return whether a person has already decided about this proposal."""
        return _is_settled(self._entry(proposal), set(self._read()["settled"]))

    def chosen(self, ids: Sequence[str]) -> list[Proposal]:
        """Return the open proposals with these ids, or all of them if no id is given. Raises
        UsageError if an id is unknown."""
        open_proposals = {proposal.id: proposal for proposal in self.waiting()}
        if unknown := [id for id in ids if id not in open_proposals]:
            raise UsageError(
                f"proposal {unknown[0]!r} does not exist", hint="`upwell inbox` lists them"
            )
        return [open_proposals[id] for id in ids or open_proposals]

    def take(self, ids: Sequence[str]) -> list[Proposal]:
        """Remove these proposals permanently, so that they are not made again. Returns those that
        were still open."""
        return self._remove(ids, settles=True)

    def ban(self, proposals: Iterable[Proposal]) -> int:
        """Remove these proposals and their duplicates permanently. Returns the number of proposals
        that were still open.
        """
        banned = {key for proposal in proposals for key in _keys(self._entry(proposal))}
        with self._changing() as content:
            removed = [entry for entry in content["waiting"] if banned & set(_keys(entry))]
            ids = {entry["id"] for entry in removed}
            content["waiting"] = [item for item in content["waiting"] if item["id"] not in ids]
            _settle(content, [*ids, *sorted(banned)])
        return len(removed)

    def settle(self, ids: Iterable[str]) -> None:
        """Keep proposals with these ids from being made again."""
        with self._changing() as content:
            _settle(content, ids)

    def withdraw(self, ids: Sequence[str]) -> list[Proposal]:
        """Remove these proposals as if they had never been made. Returns those that were still
        open."""
        return self._remove(ids, settles=False)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """The content of the file, which is written again at the end of the block."""
        with exclusively(self._path):
            content = self._read()
            yield content
            self._write(content)

    def _remove(self, ids: Sequence[str], *, settles: bool) -> list[Proposal]:
        with self._changing() as content:
            open_entries = {entry["id"]: entry for entry in content["waiting"]}
            removed = [open_entries.pop(id) for id in ids if id in open_entries]
            content["waiting"] = list(open_entries.values())
            if settles:
                _settle(content, (entry["id"] for entry in removed))
        return [_proposal(entry) for entry in removed]

    def _entry(self, proposal: Proposal) -> dict[str, Any]:
        entry = asdict(proposal) | {"text": self._mask(proposal.text)[0]}
        return entry | {"id": _proposal(entry).id}

    def _read(self) -> dict[str, Any]:
        try:
            content = orjson.loads(read_regular_file(self._path))
            return {
                "waiting": list(content["waiting"]),
                "settled": list(content["settled"]),
                "displaced": dict(content.get("displaced", {})),
            }
        except FileNotFoundError:
            return {"waiting": [], "settled": [], "displaced": {}}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreUnwritable(
                f"{self._path} cannot be read: {error}",
                hint="move it away; upwell creates a new one",
            ) from error

    def _write(self, content: Mapping[str, Any]) -> None:
        with writing(self._path):
            write_atomically(self._path, orjson.dumps(content).decode())


def imported_rule(memory: Memory) -> Proposal:
    """A memory from a file that wants to be a standing rule, as a proposal."""
    return Proposal(
        text=memory.text,
        source=f"{IMPORT}:{memory.id}",
        why=WHY_RULE,
        namespace=memory.namespace,
        paths=memory.paths,
        symbols=memory.symbols,
        triggers=memory.triggers,
        project=memory.project,
        at=memory.created_at,
    )


def inbox_at(path: Path) -> Inbox:
    """Return the inbox in this file. It masks secrets with `redact()`."""
    return Inbox(path, redact)


def of_project(
    proposals: Iterable[Proposal], project: str | None, kind: str | None
) -> list[Proposal]:
    """Return the proposals of this kind for a project. None means all kinds or all projects. Raises
    UsageError if there is no such kind."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"--kind {kind!r} does not exist", hint=", ".join(KINDS))
    return [
        proposal
        for proposal in proposals
        if (project is None or is_own(proposal.project, project)) and kind in (None, proposal.kind)
    ]


def _key(mark: str, *parts: str) -> str:
    identity = "\0".join(parts).encode("utf-8", "replace")
    return mark + hashlib.sha256(identity).hexdigest()[:11]


def _keys(entry: Mapping[str, Any]) -> Iterator[str]:
    yield entry["id"]
    yield from _proposal(entry).duplicates


def _is_settled(entry: Mapping[str, Any], settled: Collection[str]) -> bool:
    return any(key in settled for key in _keys(entry))


def _settle(content: dict[str, Any], keys: Iterable[str]) -> None:
    content["settled"] = list(dict.fromkeys([*content["settled"], *keys]))[-MAX_SETTLED:]


def _latest_of_projects(
    waiting: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return the latest `MAX_WAITING` entries per project, and the number of older entries."""
    counts: Counter[str] = Counter()
    displaced: Counter[str] = Counter()
    latest = []
    for entry in reversed(waiting):
        project = entry["project"] or ""
        counts[project] += 1
        if counts[project] > MAX_WAITING:
            displaced[project] += 1
        else:
            latest.append(entry)
    return latest[::-1], displaced


def _proposal(entry: Mapping[str, Any]) -> Proposal:
    known = {field.name for field in fields(Proposal)}
    values = {name: value for name, value in entry.items() if name in known}
    lists = {name: tuple(values.get(name) or ()) for name in ("paths", "symbols", "triggers")}
    seen = tuple((str(session), float(at)) for session, at in values.get("seen") or ())
    return Proposal(**{**values, **lists, "seen": seen})


def _same_situation(
    entry: Mapping[str, Any], open_entries: Mapping[str, dict[str, Any]]
) -> dict[str, Any] | None:
    if entry["id"] in open_entries:
        return open_entries[entry["id"]]
    own = (entry["project"], entry["why"])
    situations = _situations(entry["why"], entry["triggers"])
    return next(
        (
            other
            for other in open_entries.values()
            if (other["project"], other["why"]) == own
            and situations & _situations(other["why"], other.get("triggers") or ())
        ),
        None,
    )


def _situations(why: str, triggers: Sequence[str]) -> set[tuple[str, ...]]:
    """The situations of a proposal. Each trigger of a command is one: of two commands that work
    where another one fails, only the later is worth saying."""
    if why == WHY_COMMAND:
        return {(trigger,) for trigger in triggers}
    # Several rules may hold for the same files or commands.
    return {tuple(triggers)} if triggers and why != WHY_RULE else set()


def _later(earlier: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Return the later entry, with the occurrences of both."""
    later = entry if (entry["at"] or 0.0) >= (earlier["at"] or 0.0) else earlier
    seen = _seen(earlier)
    sessions, times = {session for session, _ in seen}, {round(at) for _, at in seen}
    new = [
        (session, at)
        for session, at in _seen(entry)
        if session not in sessions and (not at or round(at) not in times)
    ]
    occurrences = earlier.get("occurrences", 1) + len(new)
    return later | {"occurrences": occurrences, "seen": [*seen, *new][-MAX_SEEN:]}


def _seen(entry: Mapping[str, Any]) -> list[tuple[str, float]]:
    recorded = [(str(session), float(at)) for session, at in entry.get("seen") or ()]
    return recorded or [(entry["session"], entry["at"] or 0.0)]
