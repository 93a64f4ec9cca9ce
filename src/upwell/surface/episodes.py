"""Episodes beside a cue: the triggers of the moment, and whether a conclusion still holds there.

An episode is a memory with triggers. It is said by itself only where one of them is met exactly, in
its own project, while its files exist and still hold the identifiers that it names.
"""

import asyncio
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from upwell.episodes.events import Event, Kind
from upwell.episodes.triggers import triggers_of
from upwell.ground.trace import LOG
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue
from upwell.ground.types.memory import Hit, Memory

CHECK_SECONDS = 0.1
"""A slow disk costs the episode, not the call."""
MAX_CHECKED_PATHS = 8
MAX_CHECKED_BYTES = 1_000_000


def triggers_in(cue: Cue) -> tuple[str, ...]:
    """The triggers of an automatic cue."""
    return triggers_of(event_of(cue)) if cue.door in AUTOMATIC_DOORS else ()


def event_of(cue: Cue) -> Event:
    """The event that a cue reports, as past sessions record it."""
    answer = cue.answer
    return Event(
        session=cue.session,
        i=0,
        t=cue.at or 0.0,
        kind=Kind.PROMPT if cue.tool is None else Kind.TOOL,
        text=cue.text,
        tool=cue.tool or "",
        args=cue.args,
        out=answer.text if answer else "",
        failed=bool(answer and answer.failed),
        cwd=cue.cwd,
    )


def latest(hits: Sequence[Hit]) -> list[Hit]:
    """`hits` without episodes that no trigger found, and with the newest episode of each trigger:
    a later session knows better."""
    newest: dict[str, Hit] = {}
    for hit in hits:
        known = newest.get(hit.trigger)
        if hit.trigger and (known is None or _age(hit.memory) > _age(known.memory)):
            newest[hit.trigger] = hit
    chosen = {hit.memory.id for hit in newest.values()}
    return [hit for hit in hits if hit.memory.id in chosen or not hit.memory.triggers]


async def holding(hits: Sequence[Hit], project: str | None) -> tuple[list[Hit], str]:
    """`hits` without episodes that do not hold in `project` now, and what the last of these lacks.
    An episode that cannot be checked in time is left out."""
    lacks = {hit.memory.id: "" for hit in hits}
    episodes = [hit.memory for hit in hits if hit.trigger]
    if episodes:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                lacks |= await asyncio.to_thread(_lacking, episodes, project)
        except TimeoutError:
            LOG.info("the files of an episode were not checked in time")
            lacks |= dict.fromkeys((memory.id for memory in episodes), "no time to check its files")
    reasons = [lack for lack in lacks.values() if lack]
    return [hit for hit in hits if not lacks[hit.memory.id]], reasons[-1] if reasons else ""


def _age(memory: Memory) -> float:
    return memory.updated_at or memory.created_at or 0.0


def _lacking(memories: Iterable[Memory], project: str | None) -> dict[str, str]:
    return {memory.id: lack_of(memory, project) for memory in memories}


def lack_of(memory: Memory, project: str | None) -> str:
    """The reason why an episode does not hold in `project` now; "" if it does."""
    if memory.project is None:
        return ""
    if memory.project != project:
        return "learned in another project"
    paths = [Path(memory.project, path) for path in memory.paths[:MAX_CHECKED_PATHS]]
    for path in paths:
        if not path.exists():
            return f"{path.name} is gone"
    contents = [_content(path) for path in paths] if memory.symbols else []
    for name in memory.symbols[:MAX_CHECKED_PATHS]:
        if contents and not any(name.encode() in content for content in contents):
            return f"{name} is gone"
    return ""


def _content(path: Path) -> bytes:
    """The beginning of a regular file; b"" for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read(MAX_CHECKED_BYTES)
    except OSError:
        pass
    return b""
