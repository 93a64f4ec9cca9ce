"""The findings of a session: conclusions and rules to propose, and places to remember."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.capture.inbox import WHY_COMMAND, WHY_RULE, Proposal
from upwell.episodes.episode import Episode, EpisodeKind
from upwell.episodes.events import SessionEvent, inside
from upwell.episodes.miner import EpisodeMiner
from upwell.episodes.places import in_words
from upwell.episodes.trials import Trial
from upwell.ground.project import in_project
from upwell.ground.remote_address import main_worktree_of
from upwell.ground.text.anchors import relative_to
from upwell.ground.types.memory import Memory, Provenance

MAX_PROPOSALS = 20
"""The maximum number of proposals from one reading of a session. Only the latest are kept."""
PLACES = frozenset({EpisodeKind.PLACE, EpisodeKind.TICKET})
"""Kinds of episodes that are stored without asking a person. They only say where something is, and
stay valid as long as it exists.
"""
MEASURED = frozenset({WHY_COMMAND})
"""The kinds of proposals that `capture.accept = "episodes"` accepts, because their precision was
measured (`benchmarks/RESULTS.md`)."""


class Findings(Struct):
    """The findings of one session, or of a part of it, oldest first. `trials` are the commands
    that show how something is run in `project`; their folders are relative to it."""

    proposals: list[Proposal] = field(default_factory=list)
    places: list[Memory] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    project: str = ""

    def add(self, episode: Episode, project: str, source: str) -> None:
        """Add an episode from a session in `project`."""
        paths = tuple(_in_project(path, episode.cwd, project) for path in episode.paths)
        if episode.kind in PLACES:
            self.places.append(_place(episode, paths, project))
            return
        proposal = replace(proposed(episode, project, source), paths=paths)
        self.proposals = [*self.proposals, proposal][-MAX_PROPOSALS:]


def findings_in(events: Iterable[SessionEvent], project: str, source: str) -> Findings:
    """Return the findings of a session, or of a part of it, in `project`. `source` names the
    session.
    """
    miner, findings = EpisodeMiner(), Findings()
    for event in events:
        _add(findings, miner.feed(event), project, source)
    _add(findings, miner.end(), project, source)
    findings.project = main_worktree_of(project) or project
    findings.trials = [
        replace(trial, folder=_folder(trial.folder, project)) for trial in miner.trials
    ]
    return findings


def proposed(episode: Episode, project: str, source: str) -> Proposal:
    """An episode from a session in `project` as a proposal."""
    is_rule = episode.kind is EpisodeKind.RULE
    return Proposal(
        text=episode.text,
        source=source,
        why=WHY_RULE if is_rule else WHY_COMMAND,
        namespace="patterns" if is_rule else "learnings",
        paths=episode.paths,
        symbols=episode.identifiers,
        triggers=episode.triggers,
        project=main_worktree_of(project) or project,
        session=episode.session,
        at=episode.at,
    )


def without_excluded(
    events: Sequence[SessionEvent], is_excluded: Callable[[str | None], bool]
) -> Sequence[SessionEvent]:
    """The events of a session outside excluded projects. None if it began in one."""
    excluded = {cwd for cwd in {event.cwd for event in events} if is_excluded(cwd)}
    first = next((event.cwd for event in events if event.cwd), None)
    if first in excluded:
        return []
    return [event for event in events if event.cwd not in excluded] if excluded else events


def _add(findings: Findings, episodes: Iterable[Episode], project: str, source: str) -> None:
    for episode in episodes:
        findings.add(episode, project, source)


def _in_project(path: str, cwd: str | None, project: str) -> str:
    """Return the path relative to the project's root. A relative `path` starts from `cwd`."""
    absolute = str(PurePosixPath(cwd or project, path))
    return relative_to(in_project(absolute, project), project)


def _folder(folder: str, project: str) -> str:
    """The folder relative to the project's root, which is "". One outside stays absolute."""
    return inside(in_project(f"{folder}/", project), project).rstrip("/")


def _place(episode: Episode, paths: tuple[str, ...], project: str) -> Memory:
    """Return the place as a memory. Its text names the location relative to the project's root,
    because the next session may run in another of the project's folders."""
    if episode.kind is EpisodeKind.TICKET:
        text = episode.text.replace(f"`{episode.paths[0]}`", f"`{paths[0]}`")
    else:
        text = in_words(paths, episode.identifiers)
    return Memory(
        text=text,
        paths=paths,
        symbols=episode.identifiers,
        triggers=episode.triggers,
        project=project,
        provenance=Provenance(door="capture", tool=str(episode.kind), session=episode.session),
        created_at=episode.at,
        updated_at=episode.at,
    )
