"""The inbox: what was proposed and not yet kept or refused. Nothing in it is ever surfaced."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import orjson

from upwell.ground.errors import StoreUnwritable, UsageError
from upwell.ground.files import exclusively, read_whole, write_whole, writing
from upwell.ground.types import Memory, Provenance, Trust

MAX_WAITING = 500
MAX_REFUSED = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Something that might be worth keeping. `source` says where it comes from (`git:3f2a1c0`,
    `claude`), `why` by which rule it was found."""

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
        """The same for the same text of the same project."""
        said = f"{self.project or ''}\0{' '.join(self.text.lower().split())}"
        return "p" + hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:11]

    def memory(self) -> Memory:
        """What is kept when the user accepts: the user then stands behind it."""
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
    """Proposals in a file, shared by every process. `mask` takes secrets out of a text before it is
    written; `path` is 0600 in the home."""

    def __init__(self, path: Path, mask: Callable[[str], str]) -> None:
        self._path = path
        self._mask = mask

    def waiting(self) -> list[Proposal]:
        """The oldest first."""
        return [_proposal(entry) for entry in self._read()["waiting"]]

    def propose(self, proposals: Iterable[Proposal]) -> int:
        """Put in those that are new and were not refused or kept before. Gives how many."""
        with exclusively(self._path):
            held = self._read()
            known = {entry["id"] for entry in held["waiting"]} | set(held["settled"])
            fresh = {}
            for proposal in proposals:
                entry = asdict(proposal) | {"text": self._mask(proposal.text)}
                entry["id"] = _proposal(entry).id
                if entry["id"] not in known:
                    fresh[entry["id"]] = entry
            if fresh:
                held["waiting"] = [*held["waiting"], *fresh.values()][-MAX_WAITING:]
                self._write(held)
        return len(fresh)

    def chosen(self, ids: Sequence[str]) -> list[Proposal]:
        """Those with these ids, all when there are none named.

        Raises:
            UsageError: there is no such proposal.
        """
        waiting = {proposal.id: proposal for proposal in self.waiting()}
        if unknown := [one for one in ids if one not in waiting]:
            raise UsageError(
                f"there is no proposal {unknown[0]!r}", hint="`upwell inbox` lists them"
            )
        return [waiting[one] for one in ids or waiting]

    def take(self, ids: Sequence[str]) -> list[Proposal]:
        """Take these out; they are not proposed again. Those that are gone are left out."""
        with exclusively(self._path):
            held = self._read()
            waiting = {entry["id"]: entry for entry in held["waiting"]}
            taken = [waiting.pop(one) for one in ids if one in waiting]
            held["waiting"] = list(waiting.values())
            settled = [*held["settled"], *(entry["id"] for entry in taken)]
            held["settled"] = list(dict.fromkeys(settled))[-MAX_REFUSED:]
            self._write(held)
        return [_proposal(entry) for entry in taken]

    def _read(self) -> dict[str, Any]:
        try:
            held = orjson.loads(read_whole(self._path))
            return {"waiting": list(held["waiting"]), "settled": list(held["settled"])}
        except FileNotFoundError:
            return {"waiting": [], "settled": []}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreUnwritable(
                f"{self._path} cannot be read: {error}", hint="move it away; it is made anew"
            ) from error

    def _write(self, held: Mapping[str, Any]) -> None:
        with writing(self._path):
            write_whole(self._path, orjson.dumps(held).decode())


def now() -> float:
    """When something was said that does not say so itself."""
    return time.time()


def _proposal(entry: Mapping[str, Any]) -> Proposal:
    known = {field.name for field in fields(Proposal)}
    given = {name: value for name, value in entry.items() if name in known}
    return Proposal(**{**given, "paths": tuple(given.get("paths") or ())})
