"""The options of capture."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """`capture.*`. `accept` selects the proposals that need no decision: none of them, or episodes
    of the kinds whose precision was measured.
    """

    accept: Literal["nothing", "episodes"] = "nothing"
