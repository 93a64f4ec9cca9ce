"""Builds a replay of past sessions: an app on a scratch home with a simulated clock. The user's own
memories are only read."""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import tomlkit
from msgspec import Struct, field
from msgspec.structs import replace
from tomlkit.exceptions import TOMLKitError

from upwell.app.capture import SessionCapture
from upwell.app.memory import MemoryApp
from upwell.app.store import Settings
from upwell.app.wiring import App, build
from upwell.capture.git import proposals_of
from upwell.capture.sessions import findings_in
from upwell.config import Config, read_valid
from upwell.episodes.events import SessionEvent
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.files import Home
from upwell.ground.types.cue import Cue, Skip, Surfacing
from upwell.ground.types.memory import Memory
from upwell.memory.transfer import exported
from upwell.replay.memories import ReplayProjects, With
from upwell.replay.report import Material
from upwell.replay.run import Replay, SimulatedClock, Summary
from upwell.replay.timeline import Timeline, selecting
from upwell.replay.transcripts import Transcript
from upwell.sessions.turns import Turn, turns_of

COMMITS = 5_000
"""How many of a repository's latest commits are read."""
COPY_TRIES = 5
_LEFT_OUT = ("ltm", "llm", "memory", "server", "store")
"""Sections of the configuration that a replay leaves out. They connect upwell to programs that know
about later events, and to a team's database, which would receive the replay's writes."""
_FLAGS: Mapping[str, object] = {"surface.timeout_seconds": 60.0}
_MAX_SCRATCH = 100

MAX_COUNTED = 1_000_000


class Replaying(Struct, frozen=True, kw_only=True):
    """A replay in progress, the repositories of its sessions, and its app on a scratch home.
    `lacking` has the repositories whose commits could not all be read."""

    simulation: Replay
    projects: ReplayProjects
    app: App
    lacking: set[str]

    def incomplete(self) -> list[str]:
        """The roots of the repositories that lack objects, as far as they were read."""
        return sorted(self.lacking.union(self.projects.incomplete()))

    def verdicts(self) -> Mapping[str, int]:
        """How many verdicts the judging model has given so far, and what they cost; empty without
        a judge."""
        return self.app.surfacer.verdicts

    async def material(self) -> Material:
        """Count the memories that have been available to the replay so far.

        Raises:
            StoreError: the scratch home failed.
        """
        material = Material(later=self.simulation.later_notes)
        for memory in await self.app.memory.list(limit=MAX_COUNTED):
            material.add(memory)
        material.kinds["doc"] = (await self.app.documents.catalog.counts())[1]
        return material


@asynccontextmanager
async def replaying(
    timeline: Timeline,
    choices: frozenset[With],
    repository: Path | None = None,
    *,
    judged: bool = False,
) -> AsyncIterator[Replaying]:
    """A replay of these sessions with the kinds of memory in `choices`, in a scratch folder that is
    removed at the end. With `repository`, every session counts as a session in that repository.
    With `judged`, the user's model judges every event, and the replay waits for each verdict.

    Raises:
        UsageError: `repository` is not a repository, or there is no model.
        ConfigError, StoreError: the user's home cannot be read.
    """
    config, _ = read_valid()
    if judged and not config.llm.base_url:
        raise UsageError("--judge needs a model", hint="set llm.base_url and llm.model")
    left_out = tuple(section for section in _LEFT_OUT if section != "llm" or not judged)
    with _scratch() as scratch:
        projects = ReplayProjects(scratch, config.environment, repository)
        wants_notes = With.MEMORY in choices
        notes = await _memories_of(config, scratch / "copy") if wants_notes else []
        clock = SimulatedClock(timeline.begins)
        variables = tuple(f"UPWELL_{section.upper()}__" for section in left_out)
        environment = {
            name: value
            for name, value in config.environment.items()
            if not name.startswith(variables)
        }
        settings = Settings(
            home=_home_like(config.home, scratch / "home", left_out),
            environment=environment,
            flags={**_FLAGS, "surface.judge": judged},
            clock=clock,
            watches=False,
            waits_for_judge=True,
        )
        app = await build(settings)
        try:
            lacking: set[str] = set()
            capture = app.session_capture(accepts=True)
            product = _AppProduct(app, capture, config.environment, lacking)
            replay = Replay(product, clock, projects, choices, notes)
            yield Replaying(simulation=replay, projects=projects, app=app, lacking=lacking)
        finally:
            await app.aclose()


class Heard(Struct, kw_only=True):
    """What upwell would have said in past sessions. `moments` counts the memories by the moment at
    which they surfaced. If `is_partial`, these are only the earliest sessions."""

    summary: Summary = field(default_factory=Summary)
    moments: Counter[str] = field(default_factory=Counter[str])
    is_partial: bool = False


async def heard_in(
    transcripts: Sequence[Transcript],
    since: float,
    seconds: float,
    show: Callable[[int, int], None],
) -> Heard:
    """Replay the sessions that began at or after `since` (epoch seconds) with all kinds of memory,
    for about so many seconds. For errors, see `replaying()`."""
    ends, heard = time.monotonic() + seconds, Heard()
    timeline = Timeline(transcripts, lambda line: None, selecting(since, None))
    if not timeline.sessions:
        return heard
    total = timeline.events
    async with replaying(timeline, frozenset(With)) as running:
        async for decision in running.simulation.decisions(timeline):
            heard.summary.add(decision)
            if decision.hits:
                heard.moments[decision.moment] += len(decision.hits)
            show(timeline.done, total)
            if time.monotonic() > ends:
                heard.is_partial = True
                break
    return heard


class _AppProduct(Struct, frozen=True):
    """Adapts an app to `Product`, the interface that a replay drives."""

    app: App
    capture: SessionCapture
    environment: Mapping[str, str]
    lacking: set[str]
    turns: dict[str, list[Turn]] = field(default_factory=dict[str, list[Turn]])

    async def surface(self, cue: Cue) -> Surfacing | Skip:
        return await self.app.surfacer.surface(cue)

    async def compacting(self, session: str) -> None:
        await self.app.surfacer.compacting(session)

    async def turn_ended(
        self, session: str, written: Sequence[tuple[float, str]], *, over: bool
    ) -> None:
        await self.app.learning.wrote(
            session, lambda since: [entry for entry in written if entry[0] >= since], ended=over
        )

    async def remember(self, memories: Sequence[Memory]) -> None:
        if memories:
            await self.app.memory.add_many(memories)

    async def read_documents(self, folder: str) -> None:
        path = Path(folder)
        try:
            await self.app.imports.add(path, path, "markdown", lambda done, total: None)
        except UsageError:
            await self.app.documents.refresh(folder)

    def commits(self, root: str) -> list[Memory]:
        proposals, is_complete = proposals_of(root, COMMITS, self.environment)
        if not is_complete:
            self.lacking.add(root)
        return [proposal.memory() for proposal in proposals]

    async def learn(self, events: Sequence[SessionEvent], project: str) -> None:
        findings = findings_in(events, project, f"session:{events[0].session[:40]}")
        await self.capture.keep(findings)
        turns = self.turns.setdefault(events[0].session, [])
        turns += turns_of(events, len(turns))

    async def keep_record(self, session: str) -> None:
        await self.app.past_sessions().add(self.turns.pop(session, []))


@contextmanager
def _scratch() -> Iterator[Path]:
    """A private folder that is removed at the end. Searches also match its path, so its name is
    short and meaningless. The path is the same in most runs, because memory ids depend on it.
    """
    base = Path(tempfile.gettempdir()).resolve()
    for number in range(_MAX_SCRATCH):
        folder = base / f"uw-{os.getuid()}-{number}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    raise StoreError(
        f"{base} has {_MAX_SCRATCH} scratch folders",
        hint="delete the uw-* folders left by earlier replays",
    )


def _home_like(home: Home, folder: Path, left_out: Sequence[str]) -> Path:
    scratch_home = Home(folder).prepare()
    if home.lexicon_file.exists():
        shutil.copyfile(home.lexicon_file, scratch_home.lexicon_file)
    if home.config_file.exists():
        try:
            document = tomlkit.parse(home.config_file.read_text(encoding="utf-8"))
        except (TOMLKitError, UnicodeDecodeError) as error:
            raise UsageError(f"{home.config_file} is not TOML: {error}") from error
        for section in left_out:
            document.pop(section, None)
        scratch_home.config_file.write_text(tomlkit.dumps(document), encoding="utf-8")
    return folder


async def _memories_of(config: Config, copy: Path) -> list[Memory]:
    if config.store.is_team:
        return await _exported(Settings(home=config.home.root, environment=config.environment))
    home = config.home
    home_copy = Home(copy).prepare()
    for source, target in (
        (home.memory_db, home_copy.memory_db),
        (home.notes_file, home_copy.notes_file),
        (home.origins_file, home_copy.origins_file),
    ):
        _copy(source, target)
    return await _exported(Settings(home=copy, environment={}))


async def _exported(settings: Settings) -> list[Memory]:
    app = MemoryApp(settings)
    try:
        memories = [memory async for memory in exported(app.memory)]
        return [*memories, *(replace(note, lines=None) for note in app.notes.memories())]
    finally:
        await app.aclose()


def _copy(source: Path, target: Path) -> None:
    """Copy a file as of one point in time, together with the write-ahead log if it is a database.

    Raises:
        StoreError: other processes keep writing to the file.
    """
    if not source.exists():
        return
    log = source.with_name(f"{source.name}-wal")
    for attempt in range(COPY_TRIES):
        before = _stamps(source, log)
        shutil.copyfile(source, target)
        if log.exists():
            shutil.copyfile(log, target.with_name(f"{target.name}-wal"))
        if _stamps(source, log) == before:
            return
        time.sleep(0.1 * attempt)
    raise StoreError(f"{source} keeps changing", hint="try again when no agent is running")


def _stamps(*paths: Path) -> list[tuple[int, int] | None]:
    return [
        (path.stat().st_mtime_ns, path.stat().st_size) if path.exists() else None for path in paths
    ]
