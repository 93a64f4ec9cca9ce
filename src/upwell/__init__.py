"""upwell puts what an agent already knows in front of it, and keeps out of its context
what it does not need.

Names are loaded when first used, so that `import upwell` costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from upwell.ground.types import Cue, Hit, Memory, Skip, Surfacing

__all__ = ["Cue", "Hit", "Memory", "Skip", "Surfacing", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in __all__:
        from upwell.ground import types

        return getattr(types, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
