"""The programs that upwell can import memories from."""

from difflib import get_close_matches
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from upwell.ground.errors import UsageError

if TYPE_CHECKING:
    from upwell.migration.base import Program

PROGRAMS: dict[str, str] = {
    "basic-memory": "upwell.migration.basic_memory:BasicMemory",
    "mem0": "upwell.migration.mem0:Mem0",
    "claude-code": "upwell.migration.claude_code:ClaudeCode",
    "memtomem-stm": "upwell.migration.memtomem_stm:MemtomemStm",
}
"""The class of each program, as `module:class`. To add a program, write its module and add a line
here."""


def program_named(name: str) -> "Program":
    """Return the program with this name.

    Raises:
        UsageError: there is none. The hint lists the known names.
    """
    if name not in PROGRAMS:
        nearest = get_close_matches(name.lower(), PROGRAMS, 1, 0.5)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        raise UsageError(
            f"upwell cannot import from {name!r}", hint=f"{hint}known: {', '.join(PROGRAMS)}"
        )
    program: Program = resolve_name(PROGRAMS[name])()
    return program
