"""Notes that are not of this home: a folder may have come with a clone or an archive."""

from dataclasses import replace

from upwell.ground.errors import StoreError
from upwell.ground.types import Ping
from upwell.memory.stm import ShortTerm


def is_strangers(notes: ShortTerm) -> bool:
    """Does everything in the file come from somebody else?"""
    try:
        return notes.path.is_symlink() or bool(notes.file.read() and not notes.entries())
    except StoreError:
        return True


def ping_of(notes: ShortTerm) -> Ping:
    """Can the file be read, and which notes are left out?"""
    ping = notes.file.ping()
    left = notes.ignored or notes.path
    strange = 0 if notes.ignored or not ping.ok else len(notes.file.read()) - len(notes.entries())
    if not notes.ignored and not strange:
        return ping
    which = f"{strange} in it are" if strange else f"{left} is"
    said = f"{which} not of this home and not used: `upwell import --format stm {left}` does"
    return replace(ping, detail=f"{ping.detail}; {said}")
