"""Finds the files that sessions worked with, and the files in which identifiers are defined."""

from collections.abc import Iterator, Sequence

from upwell.episodes.episode import Episode, EpisodeKind
from upwell.episodes.events import DOCUMENTS, WRITERS, Kind, SessionEvent, inside
from upwell.episodes.searches import definitions
from upwell.episodes.triggers import of_place, of_symbols

MAX_FILES, MAX_SYMBOLS = 512, 256
MAX_PLACES = 2
"""A name that is defined in more files than this gets no episode."""
_FOREIGN = ("node_modules/", ".git/", "dist/", "build/", "vendor/", ".venv/", "target/")
_FILE_TOOLS = frozenset({"Read", *WRITERS})


class PlaceMiner:
    """Collects files and definitions. It returns episodes only when the session ends, because
    until then a search may show that a name is defined in too many files.
    """

    def __init__(self) -> None:
        self._files: dict[str, SessionEvent] = {}
        self._symbols: dict[str, dict[str, SessionEvent]] = {}

    def feed(self, event: SessionEvent) -> None:
        """Process the next event of the session."""
        if event.kind is not Kind.TOOL:
            return
        if event.tool in _FILE_TOOLS:
            path = event.args.get("file_path")
            if isinstance(path, str) and not event.failed:
                self._add(self._files, _own(path, event.cwd), event, MAX_FILES)
            return
        for name, file in definitions(event):
            own = _own(file, event.cwd)
            if own and not own.endswith(DOCUMENTS):
                files = self._symbols.setdefault(name, {})
                self._add(files, own, event, MAX_PLACES + 1)
                while len(self._symbols) > MAX_SYMBOLS:
                    self._symbols.pop(next(iter(self._symbols)))

    def end(self) -> Iterator[Episode]:
        """End the session. Yields the episodes for the files and the names."""
        for path, event in self._files.items():
            if keys := of_place(path):
                yield _place(event, keys, (path,))
        for name, files in self._symbols.items():
            if len(files) <= MAX_PLACES:
                event = next(iter(files.values()))
                yield _place(event, of_symbols([name]), tuple(files), (name,))

    @staticmethod
    def _add(files: dict[str, SessionEvent], path: str, event: SessionEvent, limit: int) -> None:
        if path and path not in files and len(files) < limit:
            files[path] = event


def in_words(paths: Sequence[str], names: Sequence[str] = ()) -> str:
    """Say where a file is, or in which files a name is defined."""
    if names:
        return f"`{names[0]}` is defined in {' and in '.join(f'`{path}`' for path in paths)}."
    folder, _, name = paths[0].rpartition("/")
    return f"`{name}` is {f'at `{paths[0]}`' if folder else 'in the root folder of the project'}."


def _own(path: str, root: str | None) -> str:
    """Return `path` relative to the folder of the session, or "" if the file is outside that folder
    or belongs to dependencies or build output.
    """
    own = inside(path, root)
    if own.startswith(("/", "~", "../", "$")) or any(part in own for part in _FOREIGN):
        return ""
    return own


def _place(
    event: SessionEvent,
    triggers: tuple[str, ...],
    paths: tuple[str, ...],
    identifiers: tuple[str, ...] = (),
) -> Episode:
    return Episode(
        kind=EpisodeKind.PLACE,
        text=in_words(paths, identifiers),
        triggers=triggers,
        paths=paths,
        identifiers=identifiers,
        cwd=event.cwd,
        tool=event.tool,
        session=event.session,
        at=event.t,
        evidence=(event.i,),
    )
