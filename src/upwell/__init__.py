"""upwell reminds a coding agent of what it learned earlier, and keeps unneeded text out of the
agent's context.

Names are loaded on first use, so that `import upwell` imports no other module. Importing `typing`
alone would take up most of a hook's run time.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from upwell.ground.types.cue import Cue, Skip, Surfacing
    from upwell.ground.types.memory import Hit, Memory

__all__ = ["Cue", "Hit", "Memory", "Skip", "Surfacing", "__version__"]
__version__ = "0.3.0"

_MODULES = {"Cue": "cue", "Hit": "memory", "Memory": "memory", "Skip": "cue"}
_MODULES["Surfacing"] = "cue"


def __getattr__(name: str) -> object:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"upwell.ground.types.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
