"""The `hook.*` settings."""

from dataclasses import dataclass
from typing import Literal, get_args

Replacing = Literal["claude", "codex", "cursor", "copilot", "opencode"]
REPLACING: tuple[str, ...] = get_args(Replacing)
"""The hosts that let a hook replace a tool's result. Written out, because the settings are read
without loading any host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """- `prompt_ms`, `tool_ms`: the daemon's deadlines for an answer. A hook's client has its own.
    - `cold_ms`: the deadline for a prompt if no daemon is running. Only the hook's client reads it.
    - `port`: the port on which the daemon accepts hooks over HTTP, or 0 for none.
    - `capture`: whether memories may be proposed at the end of a turn.
    - `compress`: the hosts whose hooks shorten long results of tools.
    """

    prompt_ms: int = 200
    tool_ms: int = 300
    cold_ms: int = 800
    port: int = 0
    capture: bool = False
    compress: tuple[Replacing, ...] = ()
