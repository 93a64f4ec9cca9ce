"""The options of capture."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """The `capture.*` settings. `accept` selects what becomes a memory without a person's decision:
    `nothing`, or `episodes` (conclusions from a session) of the kinds whose precision was measured.
    If `ask_agent` is set, an agent that may have learned something in a turn is asked to store it
    when the turn ends.
    """

    accept: Literal["nothing", "episodes"] = "nothing"
    ask_agent: bool = False
