"""upwell puts what an agent already knows in front of it, and keeps out of its context
what it does not need.

Names are loaded when first used, so that `import upwell` costs nothing: not even `typing`, which
would be most of the time of a hook.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from upwell.ground.types import Cue, Hit, Memory, Skip, Surfacing

__all__ = ["Cue", "Hit", "Memory", "Skip", "Surfacing", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in __all__:
        from upwell.ground import types

        return getattr(types, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
