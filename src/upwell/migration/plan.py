"""The plan of an import: what to import and what to leave out."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from upwell.ground.secrets.redact import redact
from upwell.ground.types.memory import Memory
from upwell.migration.base import ImportedServer, LeftOut, Setting

MAX_EXAMPLES = 5
MAX_EXAMPLE_CHARS = 80


class SkippedItems(Struct):
    """How many items are left out for one reason, and some examples."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


class ImportPlan(Struct):
    """What an import writes and leaves out. `redacted` counts, for each rule, the items in which
    it masked secrets. `changed` counts the memories that replace an earlier version."""

    program: str
    stores: list[str]
    memories: list[Memory] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    servers: list[ImportedServer] = field(default_factory=list)
    changed: int = 0
    left_out: dict[str, SkippedItems] = field(default_factory=dict)
    redacted: Counter[str] = field(default_factory=Counter)

    def leave_out(self, item: LeftOut) -> None:
        omission = self.left_out.setdefault(redact(item.why)[0], SkippedItems())
        omission.count += item.count
        if item.example and len(omission.examples) < MAX_EXAMPLES:
            example = " ".join(redact(item.example)[0].split())
            omission.examples.append(example[:MAX_EXAMPLE_CHARS])

    @property
    def total(self) -> int:
        """The number of items to import."""
        return sum(self.counts.values())

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """The number of items to import, keyed by kind and place."""
        counts = Counter((memory.namespace, memory.project or "") for memory in self.memories)
        for kind, items in (("setting", self.settings), ("server", self.servers)):
            if items:
                counts[kind, "config.toml"] = len(items)
        return counts

    def described(self, *, dry_run: bool) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "program": self.program,
            "stores": self.stores,
            "dry_run": dry_run,
            "total": self.total,
            "changed": self.changed,
            "imported": [
                {"kind": kind, "place": place, "count": count}
                for (kind, place), count in sorted(self.counts.items())
            ],
            "left_out": [
                {"why": why, "count": omission.count, "examples": omission.examples}
                for why, omission in self.left_out.items()
            ],
            "redacted": dict(self.redacted),
        }
