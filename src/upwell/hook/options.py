"""The `hook.*` settings."""

from dataclasses import dataclass
from typing import Literal, get_args

Replacing = Literal["claude", "codex", "cursor", "copilot", "opencode"]
REPLACING: tuple[str, ...] = get_args(Replacing)
"""The hosts that let a hook replace a tool's result. Written out, because the settings are read
without loading any host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """- `port`: the port on which the daemon accepts hooks over HTTP, or 0 for none.
    - `capture`: whether memories may be proposed at the end of a turn.
    - `compress`: the hosts whose hooks shorten long results of tools.
    """

    port: int = 0
    capture: bool = False
    compress: tuple[Replacing, ...] = ()
