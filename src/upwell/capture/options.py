"""The options of capture."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """`capture.*`. `accept` selects the proposals that need no decision: none of them, or episodes
    of the kinds whose precision was measured. `ask_agent`: at the end of a turn in which the agent
    may have learned something, it is asked to store that.
    """

    accept: Literal["nothing", "episodes"] = "nothing"
    ask_agent: bool = False
