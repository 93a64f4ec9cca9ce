"""What a user imports: live sources, and copies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.memory.documents import Documents, Progress
from upwell.memory.library import Library
from upwell.memory.scan import Problem
from upwell.memory.sources import Source, Sources, source_at
from upwell.memory.transfer import bring_in, format_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of an import. Of a live source: the `files` and `chunks` that are read of it and
    the `problems` met; of a copy: the memories `kept`, and how often which rule masked a secret."""

    path: str
    format: str
    files: int = 0
    chunks: int = 0
    problems: tuple[Problem, ...] = ()
    kept: int = 0
    redacted: Mapping[str, int] = field(default_factory=dict)


class Imports:
    """Takes in files and folders, and lets go of them."""

    def __init__(self, library: Library, documents: Documents, sources: Sources) -> None:
        self._library = library
        self._documents = documents
        self._sources = sources

    async def all(self) -> list[Source]:
        """The files and folders that are read where they stand."""
        return await self._sources.all()

    async def take(self, path: Path, folder: Path, named: str, progress: Progress) -> Imported:
        """Import `path` in the format `named` ("auto": by its name). Markdown is cited relative to
        `folder`.

        Raises:
            UsageError: there is nothing to import, something wrong in it, or far too much.
            StoreError: it was not kept.
        """
        if not path.exists():
            raise UsageError(f"cannot import {path}: nothing is there")
        form = format_of(path, named)
        if form != "markdown":
            copied = await bring_in(self._library, path, form, progress)
            return Imported(path=str(path), format=form, kept=copied.kept, redacted=copied.redacted)
        _refuse_everything(path)
        source = source_at(path, folder)
        known = source.path in [one.path for one in await self._sources.all()]
        await self._sources.add(source)
        state = await self._documents.refresh(progress=progress)
        files, chunks = await self._documents.counts(source)
        if not files and not known and not any(source.holds(one.path) for one in state.problems):
            await self._sources.remove(source.path)
            raise UsageError(
                f"no Markdown file was found in {path}, and it is not watched",
                hint="import a folder that has *.md files, or a file with --format",
            )
        return Imported(
            path=source.path,
            format=form,
            files=files,
            chunks=chunks,
            problems=tuple(one for one in state.problems if source.holds(one.path)),
        )

    async def let_go(self, path: Path) -> None:
        """No longer read this source, and forget what was made of it.

        Raises:
            UsageError: it was not imported.
        """
        for named in dict.fromkeys((str(path.resolve()), str(path.absolute()), str(path))):
            if await self._sources.remove(named):
                await self._documents.refresh()
                return
        raise UsageError(f"{path} is not imported", hint="`upwell import` shows what is")


def _refuse_everything(path: Path) -> None:
    """A home, or what is above it, holds far more Markdown than anybody wrote as notes.

    Raises:
        UsageError: `path` is such a folder.
    """
    folder = path.resolve()
    if folder == Path.home().resolve() or folder in Path.home().resolve().parents:
        raise UsageError(
            f"{path} holds everything of yours, not only notes",
            hint="import the folders that have them, like `upwell import ~/notes`",
        )
