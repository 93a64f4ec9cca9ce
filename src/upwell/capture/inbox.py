"""The inbox: memories that were proposed and not yet accepted or refused. None is ever surfaced."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import orjson

from upwell.ground.errors import StoreUnwritable, UsageError
from upwell.ground.files import exclusively, read_regular_file, write_atomically, writing
from upwell.ground.types.memory import Memory, Provenance, Trust

MAX_WAITING = 500
MAX_SETTLED = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A possible memory. `source` is its origin (`git:3f2a1c0`, `claude`), `why` the rule that
    found it."""

    text: str
    source: str
    why: str
    namespace: str = "context"
    paths: tuple[str, ...] = ()
    project: str | None = None
    session: str = ""
    at: float | None = None

    @property
    def id(self) -> str:
        """Equal for equal texts of one project."""
        identity = f"{self.project or ''}\0{' '.join(self.text.lower().split())}"
        return "p" + hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:11]

    def memory(self) -> Memory:
        """The memory that an accepted proposal becomes. The user then vouches for it."""
        return Memory(
            id=self.id,
            text=self.text,
            namespace=self.namespace,
            paths=self.paths,
            project=self.project,
            source=self.source,
            provenance=Provenance(door="capture", tool=self.why, session=self.session),
            trust=Trust.USER,
            created_at=self.at,
        )


class Inbox:
    """Proposals in a file that every process shares, 0600 in the home. `mask` removes secrets from
    a text before it is written."""

    def __init__(self, path: Path, mask: Callable[[str], str]) -> None:
        self._path = path
        self._mask = mask

    def waiting(self) -> list[Proposal]:
        """The open proposals, oldest first."""
        return [_proposal(entry) for entry in self._read()["waiting"]]

    def propose(self, proposals: Iterable[Proposal]) -> int:
        """Add the proposals that are neither open nor settled already. Returns their number."""
        with exclusively(self._path):
            content = self._read()
            known = {entry["id"] for entry in content["waiting"]} | set(content["settled"])
            fresh = {}
            for proposal in proposals:
                entry = asdict(proposal) | {"text": self._mask(proposal.text)}
                entry["id"] = _proposal(entry).id
                if entry["id"] not in known:
                    fresh[entry["id"]] = entry
            if fresh:
                content["waiting"] = [*content["waiting"], *fresh.values()][-MAX_WAITING:]
                self._write(content)
        return len(fresh)

    def chosen(self, ids: Sequence[str]) -> list[Proposal]:
        """The proposals with these ids; all of them where no id is given.

        Raises:
            UsageError: an id is unknown.
        """
        waiting = {proposal.id: proposal for proposal in self.waiting()}
        if unknown := [id for id in ids if id not in waiting]:
            raise UsageError(
                f"proposal {unknown[0]!r} does not exist", hint="`upwell inbox` lists them"
            )
        return [waiting[id] for id in ids or waiting]

    def take(self, ids: Sequence[str]) -> list[Proposal]:
        """Remove these proposals for good: they are not proposed again. Returns those that were
        still open."""
        with exclusively(self._path):
            content = self._read()
            waiting = {entry["id"]: entry for entry in content["waiting"]}
            removed = [waiting.pop(id) for id in ids if id in waiting]
            content["waiting"] = list(waiting.values())
            settled = [*content["settled"], *(entry["id"] for entry in removed)]
            content["settled"] = list(dict.fromkeys(settled))[-MAX_SETTLED:]
            self._write(content)
        return [_proposal(entry) for entry in removed]

    def _read(self) -> dict[str, Any]:
        try:
            content = orjson.loads(read_regular_file(self._path))
            return {"waiting": list(content["waiting"]), "settled": list(content["settled"])}
        except FileNotFoundError:
            return {"waiting": [], "settled": []}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreUnwritable(
                f"{self._path} cannot be read: {error}",
                hint="move it away; upwell creates a new one",
            ) from error

    def _write(self, content: Mapping[str, Any]) -> None:
        with writing(self._path):
            write_atomically(self._path, orjson.dumps(content).decode())


def _proposal(entry: Mapping[str, Any]) -> Proposal:
    known = {field.name for field in fields(Proposal)}
    values = {name: value for name, value in entry.items() if name in known}
    return Proposal(**{**values, "paths": tuple(values.get("paths") or ())})
