"""`hook.*`."""

from dataclasses import dataclass
from typing import Literal

Replacing = Literal["claude", "codex", "copilot", "cursor", "opencode"]
"""The hosts that let a hook put something else in place of what a tool answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """`port` 0: hooks that are HTTP requests are not served. `idle_minutes` without an event, and
    the daemon ends. `capture`: the end of a turn may propose memories. `compress`: the hosts whose
    own tools' answers are fitted to the budget."""

    enabled: bool = True
    prompt_ms: int = 200
    tool_ms: int = 300
    port: int = 0
    idle_minutes: float = 30.0
    capture: bool = False
    compress: tuple[Replacing, ...] = ()
