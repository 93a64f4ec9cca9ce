"""Options for upwell's own tools."""

from collections.abc import Collection
from dataclasses import dataclass

FEW = ("read_more", "memory_search", "memory_get", "add_memory", "delete_memory")
"""The tools that an agent gets from `upwell serve --tools` by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsOptions:
    """The `tools.*` settings. With `all`, `upwell serve --tools` offers every tool of upwell, not
    only `FEW`."""

    all: bool = False

    def hidden(self, names: Collection[str], *, few: bool) -> set[str]:
        """The tools that are not offered. `few`: for `upwell serve --tools`."""
        return set(names) - set(FEW) if few and not self.all else set()
