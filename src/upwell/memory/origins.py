"""Where notes come from. `stm.json` has four keys and no place for it (seed 001), so it stands in
a file of the home beside: which project a note belongs to, and who stands behind it.

A repository can bring notes of its own; it cannot say that a person of this machine wrote them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from upwell.ground.files import clear_halves, exclusively, read_whole, write_whole
from upwell.ground.types import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """`project` is the absolute root that a note belongs to, None belongs everywhere."""

    project: str | None = None
    trust: Trust = Trust.USER
    session: str = ""


class Origins:
    """Note id → origin, in one JSON file. Its methods block; writing raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> dict[str, Origin]:
        """Every origin that is known. What cannot be read is not known."""
        return {key: origin for key, raw in self._load().items() if (origin := _origin(raw))}

    def keep(self, note_id: str, origin: Origin) -> None:
        """Write down where a note comes from."""
        self._change(lambda known: {**known, note_id: asdict(origin)})

    def drop(self, note_ids: Iterable[str]) -> None:
        """Forget the origins of these notes, which are gone."""
        gone = set(note_ids)
        if gone:
            self._change(lambda known: {k: raw for k, raw in known.items() if k not in gone})

    def _change(self, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusively(self._path):
            clear_halves(self._path)
            write_whole(self._path, json.dumps(change(self._load()), indent=1) + "\n")

    def _load(self) -> dict[str, Any]:
        try:
            known = json.loads(read_whole(self._path))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _origin(raw: object) -> Origin | None:
    if not isinstance(raw, dict):
        return None
    project, session = raw.get("project"), raw.get("session")
    try:
        trust = Trust(raw.get("trust", Trust.USER))
    except ValueError:
        trust = Trust.AGENT
    return Origin(
        project=project if isinstance(project, str) else None,
        trust=trust,
        session=session if isinstance(session, str) else "",
    )
