"""Checks whether an episode (the conclusion of an earlier session) still holds for a cue.

An episode is a memory with triggers: the exact situations in which it helps, such as a missing file
or a failing command. Unless the user asks for it, an episode is shown only if one of its triggers
is met in its own project, and if its files exist and still contain its identifiers.
"""

import asyncio
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from upwell.episodes.failures import failure_of
from upwell.ground.project import is_own
from upwell.ground.trace import LOG
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Hit, Memory
from upwell.memory.places import PLACE
from upwell.surface.event import as_session_event

CHECK_SECONDS = 0.1
"""The time limit for checking files, so that a slow disk does not hold up the call."""
MAX_CHECKED_PATHS = 8
MAX_CHECKED_BYTES = 1_000_000
MAX_LISTED_ENTRIES = 30_000
"""The maximum number of entries searched in a project for another file of the same name. In a
larger project, the name counts as ambiguous, and the episode is left out."""
MAX_SHOWN_CHARS = 160
SITUATIONS: Mapping[str, str] = {
    "file": "the missing file",
    "below": "the missing file",
    "symbol": "an unsuccessful search for",
    "ticket": "the ticket",
}
"""The kinds of triggers, in words."""
_INSTALLED = frozenset({"node_modules", "vendor", "venv", "site-packages", "target", "__pycache__"})


def situation_of(cue: Cue, trigger: str) -> str:
    """The cue's situation as the trigger describes it, in words."""
    kind, _, value = trigger.partition(":")
    failure = failure_of(as_session_event(cue)) if kind in ("fails", "way") else None
    if failure is not None:
        step = failure.step.text[:MAX_SHOWN_CHARS]
        return f'the error "{failure.message[:MAX_SHOWN_CHARS]}" of `{step}`'
    return f"{SITUATIONS.get(kind, kind)} {value[:MAX_SHOWN_CHARS]}"


async def applicable(
    hits: Sequence[Hit], triggers: Sequence[str], project: str | None
) -> tuple[list[Hit], str]:
    """Reduce the episodes among `hits` to at most one, and place it first. Also returns why an
    episode was left out, if none remains (otherwise "").

    The triggers are tried one by one until one yields an episode. A trigger yields its newest
    conclusion if that holds in `project`; older conclusions are outdated. Otherwise, it yields the
    newest place (the location of a file, identifier or ticket) that holds, unless places that hold
    name different locations. Episodes that cannot be checked in time are left out.
    """
    episodes = [hit for hit in hits if hit.trigger]
    if not episodes:
        return list(hits), ""
    lacks: dict[str, str] = {}
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            lacks = await asyncio.to_thread(_lacks, episodes, project)
    except TimeoutError:
        LOG.info("the files of an episode were not checked in time")
    others = [hit for hit in hits if not hit.trigger]
    for trigger in triggers:
        of_trigger = [hit for hit in episodes if hit.trigger == trigger]
        if episode := _chosen(of_trigger, lacks):
            return [episode, *others], ""
    return others, next(filter(None, lacks.values()), "several locations, not one")


def _chosen(hits: Sequence[Hit], lacks: Mapping[str, str]) -> Hit | None:
    conclusions = [hit for hit in hits if PLACE not in hit.signals]
    newest = max(conclusions, key=lambda hit: _written_at(hit.memory), default=None)
    if newest is not None and lacks.get(newest.memory.id) == "":
        return newest
    places = [hit for hit in hits if PLACE in hit.signals and lacks.get(hit.memory.id) == ""]
    # Sessions in different folders of the project word the same location differently.
    locations = {frozenset(hit.memory.paths) for hit in places}
    return max(places, key=lambda hit: _written_at(hit.memory)) if len(locations) == 1 else None


def _written_at(memory: Memory) -> float:
    return memory.updated_at or memory.created_at or 0.0


def _lacks(hits: Iterable[Hit], project: str | None) -> dict[str, str]:
    return {
        hit.memory.id: lack_of(hit.memory, project)
        or _ambiguity_of(hit.memory, hit.trigger, project)
        for hit in hits
    }


def _ambiguity_of(memory: Memory, trigger: str, project: str | None) -> str:
    """The reason not to give a location for a bare file name, if several files in the project have
    that name."""
    if not trigger.startswith("file:") or memory.project is None or not memory.paths:
        return ""
    name = os.path.basename(memory.paths[0])
    root = project or memory.project
    return f"the project has several files named {name}" if _has_several(root, name) else ""


def _has_several(root: str, name: str) -> bool:
    """True if several files below `root` have this name, outside hidden folders and folders of
    installed packages. Also True if the project has too many files to search."""
    namesakes = entries = 0
    for _, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each[0] != "." and each not in _INSTALLED]
        namesakes += name in files
        entries += len(folders) + len(files)
        if namesakes > 1 or entries > MAX_LISTED_ENTRIES:
            return True
    return False


def lack_of(memory: Memory, project: str | None) -> str:
    """The reason why an episode does not hold in `project` now; "" if it does."""
    if memory.project is None:
        return ""
    if project is None or not is_own(memory.project, project):
        return "learned in another project"
    paths = [Path(project, path) for path in memory.paths[:MAX_CHECKED_PATHS]]
    for path in paths:
        # Unlike `Path.exists`, `os.path.exists` is False for a name that is too long.
        if not os.path.exists(path):
            return f"{path.name} is gone"
    contents = [_content(path) for path in paths] if memory.symbols else []
    for name in memory.symbols[:MAX_CHECKED_PATHS]:
        if contents and not any(name.encode() in content for content in contents):
            return f"{name} is gone"
    return ""


def _content(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read(MAX_CHECKED_BYTES)
    except OSError:
        pass
    return b""
