"""Keep a folder of Markdown files and the store alike.

Each round compares both with what they last agreed on (`State`). Every step can be repeated: a
round that is killed leaves files and memories that the next one recognises as alike. If both sides
changed, both are kept. Nothing is read or written through a symbolic link. If someone waits for
a search of the store, `KeptRecall` has the files that changed read first.
"""

import asyncio
import errno
import hashlib
import os
import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import batched
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError, StoreUnwritable, UsageError
from upwell.ground.files import exclusively, remove_partial_files, write_atomically
from upwell.ground.project import real_folder
from upwell.ground.text.words import counted
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Found, Memory, Query
from upwell.memory.base import Store, StoreRecall
from upwell.memory.documents.reading import (
    FoundFile,
    Problem,
    UnreadableFile,
    read_bytes,
    scan,
    text_of,
)
from upwell.memory.folder_pages import (
    MARK,
    Entry,
    Page,
    State,
    is_new_id,
    is_same,
    load,
    memory_from,
    name_of,
    new_id,
    page_in,
    save,
    to_page,
    with_id,
)
from upwell.memory.relocation import EVERYTHING
from upwell.memory.team.sharing import is_teams

SEARCH_SHARE = 0.5
"""The share of a search's time in which changed files are taken in first."""
GONE_SECONDS = 0.3
"""Some editors save by moving the old file away first."""
LOCK_TRIES, LOCK_SECONDS = 40, 0.05
PARTIAL = ".upwell~"
BATCH = 200
MAX_NAMED = 5

Forgotten = Callable[[Memory], None]
Shared = Callable[[], Awaitable[Collection[str]]]


class MemoryFolder:
    """The folder of a home, if there is one. `forgotten()` is told of memories whose files were
    deleted. `shared()` names the team's memories, which have no files."""

    def __init__(self, path: Path, store: Store, forgotten: Forgotten, shared: Shared) -> None:
        self._path = path
        self._store = store
        self._forgotten = forgotten
        self._shared = shared
        self._busy = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def folder(self) -> str | None:
        state = load(self._path)
        return state.folder if state else None

    def problems(self) -> list[str]:
        state = load(self._path)
        if state is None:
            return []
        unread = {name: entry.problem for name, entry in state.files.items() if entry.problem}
        return [f"{name}: {reason}" for name, reason in (state.failures | unread).items()]

    async def begin(self, folder: Path) -> int:
        """Write every memory into `folder`, and keep both alike from now on. Returns the number of
        files.

        Raises:
            UsageError: another folder is kept, or this one has Markdown files of its own.
            StoreError: the memories cannot be read.
            StoreUnwritable: the folder cannot be written.
        """
        root = real_folder(str(folder))
        before = load(self._path)
        if before and before.folder != root:
            raise UsageError(
                f"the memories are in {before.folder} already",
                hint=f"end that first: upwell import --remove {before.folder}",
            )
        is_kept = before is not None and os.path.isfile(before.path(MARK))
        _prepare(Path(root), is_kept=is_kept)
        with exclusively(self._path):
            save(self._path, before if before and is_kept else State(root))
        await self._round()
        state = load(self._path)
        return len(state.files) if state else 0

    def end(self, folder: Path) -> bool:
        """Stop keeping this folder. Its files stay. Returns False if it is not kept."""
        with exclusively(self._path):
            state = load(self._path)
            if state is None or state.folder != real_folder(str(folder)):
                return False
            self._path.unlink()
            Path(state.folder, MARK).unlink(missing_ok=True)
        return True

    async def sync(self) -> None:
        """Bring both sides up to date. A failure is logged, and the next round continues."""
        try:
            await self._round()
        except (StoreError, StoreUnwritable, UsageError, OSError) as error:
            LOG.warning("the folder of memories: %s", error)

    async def catch_up(self, deadline: Deadline) -> None:
        """Bring both sides up to date before a search, which waits for at most half of its time."""
        task = asyncio.create_task(self.sync())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=max(0.0, deadline.remaining() * SEARCH_SHARE))

    def take_lines(self) -> list[str]:
        """What happened in the folder since a person last asked."""
        state = load(self._path)
        if state is None or not state.lines:
            return []
        with exclusively(self._path):
            state = load(self._path) or state
            lines, state.lines = state.lines, []
            save(self._path, state)
        return lines

    async def _round(self) -> None:
        async with self._busy:
            with ExitStack() as stack:
                for _ in range(LOCK_TRIES):  # Waiting here does not hold up the event loop.
                    with suppress(StoreUnwritable):
                        stack.enter_context(exclusively(self._path, 0.0))
                        break
                    await asyncio.sleep(LOCK_SECONDS)
                else:
                    stack.enter_context(exclusively(self._path, 0.0))
                state, before = load(self._path), load(self._path)
                if state is None:
                    return
                try:
                    shared = await self._shared()
                    await _Round(self._path, state, self._store, self._forgotten, shared).run()
                finally:
                    if state != before:
                        save(self._path, state)


class _File(Struct, frozen=True):
    """A new or changed file."""

    name: str
    found: FoundFile
    raw: str
    hash: str
    page: Page


class _Round:
    """One comparison. `_versions` has the times of the memories' last changes, by id, without those
    of the team's memories."""

    def __init__(
        self,
        path: Path,
        state: State,
        store: Store,
        forgotten: Forgotten,
        shared: Collection[str],
    ) -> None:
        self._path = path
        self._state = state
        self._store = store
        self._forgotten = forgotten
        self._shared = shared
        self._trash: dict[str, Memory] | None = None
        self._failures: dict[str, str] = {}
        self._versions: dict[str, float] = {}
        self._present: set[str] = set()

    async def run(self) -> None:
        state = self._state
        if not os.path.isfile(state.path(MARK)):
            state.say(
                f"{state.folder} is not there as upwell left it; its memories stay as they are"
            )
            return
        remove_partial_files(Path(state.path(MARK)), PARTIAL)
        look = await asyncio.to_thread(scan, [state.source], [state.folder], state.known())
        stamps = await self._store.stamps(limit=EVERYTHING)
        self._versions = {id: at for id, at in stamps.items() if id not in self._shared}
        self._present = {os.path.relpath(path, state.folder) for path in look.present_paths}
        unread = [problem for problem in look.problems if not os.path.islink(problem.path)]
        self._note_problems(look.problems)
        for found in sorted(look.changed, key=lambda found: found.path):
            if file := self._read(found):
                try:
                    await self._store_page(file, self._id_of(file))
                except UsageError as error:
                    self._refuse(state.see(found, file.name), file.name, error.message)
        if not unread:
            await self._forget_deleted()
        await self._write_changed()
        for name, entry in list(state.files.items()):
            is_agreed = entry.id and entry.hash and not entry.problem
            if is_agreed and entry.id not in self._versions and state.is_as_seen(name):
                self._remove(name)
        new = self._failures.items() - state.failures.items()
        state.failures = self._failures
        for name, reason in sorted(new)[:MAX_NAMED]:
            state.say(f"{name} {reason}")
        if len(new) > MAX_NAMED:
            state.say(f"{len(new) - MAX_NAMED} more files, too; see `upwell doctor`")

    def _note_problems(self, problems: Sequence[Problem]) -> None:
        """Remember the links and folders that are left out, and forget those that no longer are."""
        state = self._state
        reasons = {os.path.relpath(each.path, state.folder): each.why for each in problems}
        for name, reason in reasons.items():
            entry = state.files.setdefault(name, Entry())
            entry.mtime_ns = 0
            self._refuse(entry, name, reason)
        for name, entry in list(state.files.items()):
            if not entry.id and name not in self._present and name not in reasons:
                del state.files[name]

    # From the folder to the store

    def _read(self, found: FoundFile) -> _File | None:
        """The file, unless its content is as before or cannot be used."""
        name = os.path.relpath(found.path, self._state.folder)
        try:
            data = read_bytes(found.path, self._state.folder)
            digest = hashlib.sha256(data).hexdigest()[:32]
            entry = self._state.files.get(name)
            if entry and entry.hash == digest:
                self._state.see(found, name)
                entry.problem = ""
                return None
            raw = text_of(data)
            return _File(name, found, raw, digest, page_in(raw))
        except (UnreadableFile, UsageError) as error:
            self._refuse(self._state.see(found, name), name, error.args[0])
        return None

    def _refuse(self, entry: Entry, name: str, reason: str) -> None:
        if entry.problem != reason:
            entry.problem = reason
            self._state.say(f"left out {name}: {reason}")

    def _id_of(self, file: _File) -> str:
        """The id of the memory that a file describes. A file that was renamed takes its entry
        along; a copy of another file is a new memory."""
        files, claimed = self._state.files, file.page.id
        entry = files.get(file.name)
        own = entry.id if entry else ""
        holder = next((name for name, each in files.items() if each.id == claimed), None)
        is_known = holder is not None or claimed in self._versions or claimed in self._shared
        if not (is_known or is_new_id(claimed)) or (
            own and holder is None and claimed not in self._versions
        ):
            return own or new_id(file.name, file.raw)
        if holder is None or holder == file.name:
            return claimed
        if holder not in self._present:
            files[file.name] = files.pop(holder)
            return claimed
        return own or new_id(file.name, file.raw)

    async def _store_page(self, file: _File, memory_id: str) -> None:
        state, entry = self._state, self._state.files.get(file.name)
        page = replace(
            file.page, project=state.projects.get(file.page.project or "", file.page.project)
        )
        before = await self._store.get(memory_id)
        agreed = entry.version if entry and entry.id == memory_id and entry.hash else None
        if before is None:
            memory_id = await self._restored(file, page, memory_id)
            before = await self._store.get(memory_id)
            agreed = before.updated_at if before else None
        if before is not None and before.pinned:
            raise UsageError("it is a standing rule; `upwell rules` changes it")
        memory, has_secrets = memory_from(page, before, memory_id, state.project_of(file.name))
        if memory_id in self._shared or any(map(_is_teams, (memory, before))):
            raise UsageError(
                "files do not change what a team shares; use `upwell remember --share`"
            )
        is_agreed = before is not None and before.updated_at == agreed
        if before is None:
            self._announce(file.name, memory)
            await self._store.add([memory])
        elif not is_same(memory, before):
            if is_agreed or (entry and entry.taken == _digest(before)):
                self._announce(file.name, memory)
                await self._store.update(memory)
            else:
                memory = await self._keep_both(file, memory)
        if has_secrets:
            state.say(f"{file.name} contains a secret, which upwell masked in the memory only")
        await self._agree(file, memory.id)

    async def _restored(self, file: _File, page: Page, memory_id: str) -> str:
        """Bring a forgotten memory back if this is its own file, which was edited since, or if the
        file is as it was. Any other file that names a forgotten memory gets an id of its own."""
        if self._trash is None:
            trash = await self._store.trash(limit=EVERYTHING)
            self._trash = {memory.id: memory for memory in trash}
        entry = self._state.files.get(file.name)
        while old := self._trash.get(memory_id):
            project = self._state.project_of(file.name)
            is_own = entry is not None and entry.id == memory_id
            is_own = is_own or is_same(memory_from(page, old, memory_id, project)[0], old)
            if is_own and not old.pinned and not _is_teams(old):
                break
            memory_id = new_id(file.name, memory_id + file.raw)
        if old and await self._store.restore(memory_id) and entry and entry.id:
            self._state.say(f"{file.name} was edited after it was forgotten: remembered again")
        return memory_id

    def _announce(self, name: str, memory: Memory) -> None:
        """Save what is about to be stored, so that the next round knows it after a kill."""
        entry = self._state.files.setdefault(name, Entry(id=memory.id))
        entry.taken = _digest(memory)
        save(self._path, self._state)

    async def _keep_both(self, file: _File, memory: Memory) -> Memory:
        """Make a changed file a memory of its own, because its memory changed, too."""
        other_id = new_id(file.name, memory.id + file.raw)
        other = replace(memory, id=other_id, created_at=None, supersedes=None)
        await self._store.add([other])
        self._state.say(
            f"{file.name} and the memory {memory.id} were both changed: both are kept, and "
            f"{file.name} is now {other.id}"
        )
        return other

    async def _agree(self, file: _File, memory_id: str) -> None:
        """Note that a file and its memory are alike, and write the memory's id into the file."""
        stored = await self._store.get(memory_id)
        version = (stored.updated_at if stored else None) or 0.0
        self._versions[memory_id] = version
        entry = self._state.see(file.found, file.name)
        entry.id, entry.version, entry.hash, entry.problem = memory_id, version, file.hash, ""
        if file.page.id != memory_id:
            self._write(file.name, with_id(file.raw, memory_id), entry)

    async def _forget_deleted(self) -> None:
        files = self._state.files
        gone = [
            name
            for name in files
            if name not in self._present and not os.path.lexists(self._state.path(name))
        ]
        if not gone:
            return
        await asyncio.sleep(GONE_SECONDS)
        forgotten: list[str] = []
        for name in gone:
            if os.path.lexists(self._state.path(name)):
                continue
            entry = files.pop(name)
            version = self._versions.get(entry.id)
            if version == entry.version:
                memory = await self._store.get(entry.id)
                if memory and not _is_teams(memory) and await self._store.delete(entry.id):
                    forgotten.append(entry.id)
                    del self._versions[entry.id]
                    await asyncio.to_thread(self._forgotten, memory)
            elif version is not None:
                self._state.say(f"{name} was deleted, but its memory has changed: written again")
        if len(forgotten) > MAX_NAMED:
            count = counted(len(forgotten), "memory", "memories")
            self._state.say(f"forgot {count} whose files were deleted; see `upwell recall --trash`")
            return
        for memory_id in forgotten:
            command = f"upwell restore {shlex.quote(memory_id)}"
            self._state.say(f"forgot {memory_id}, whose file was deleted; `{command}`")

    # From the store to the folder

    async def _write_changed(self) -> None:
        names = {entry.id: name for name, entry in self._state.files.items()}
        changed = [
            memory_id
            for memory_id, version in self._versions.items()
            if memory_id not in names or self._state.files[names[memory_id]].version != version
        ]
        for ids in batched(changed, BATCH):
            memories = await self._store.get_many(ids)
            await asyncio.to_thread(self._write_memories, memories, names)

    def _write_memories(self, memories: Sequence[Memory], names: Mapping[str, str]) -> None:
        for memory in memories:
            name = names.get(memory.id)
            has_file = not memory.pinned and not _is_teams(memory)
            if name and (self._state.files[name].problem or not self._state.is_as_seen(name)):
                continue
            if has_file:
                name = name or os.path.join(self._state.subfolder(memory.project), name_of(memory))
                entry = Entry(id=memory.id, version=memory.updated_at or 0.0)
                self._write(name, to_page(memory), entry)
            elif name:
                self._remove(name)

    def _write(self, name: str, content: str, entry: Entry) -> None:
        """Replace a file, if it is still as it was seen, and agree on the new content."""
        path = Path(self._state.path(name))
        known = self._state.files.get(name)
        if known is None and os.path.lexists(path):
            return  # The next round reads it first.
        if known is not None and not self._state.is_as_seen(name):
            return
        data = content.encode("utf-8", "backslashreplace")
        try:
            with suppress(FileExistsError):
                path.parent.mkdir(mode=0o700)
            if os.path.realpath(path.parent) != str(path.parent):
                raise OSError(errno.ELOOP, "its folder is a symbolic link")
            write_atomically(path, data, prefix=PARTIAL)
            info = os.lstat(path)
        except OSError as error:
            self._failures[name] = f"cannot be written: {error.strerror}"
            return
        entry.size, entry.mtime_ns = info.st_size, info.st_mtime_ns
        entry.hash = hashlib.sha256(data).hexdigest()[:32]
        self._state.files[name] = entry

    def _remove(self, name: str) -> None:
        try:
            os.unlink(self._state.path(name))
        except OSError as error:
            self._failures[name] = f"cannot be removed: {error.strerror}"
        else:
            del self._state.files[name]


def _is_teams(memory: Memory | None) -> bool:
    return memory is not None and is_teams(memory.namespace)


def _digest(memory: Memory) -> str:
    page = to_page(replace(memory, created_at=None)).encode("utf-8", "backslashreplace")
    return hashlib.sha256(page).hexdigest()[:32]


def _prepare(root: Path, *, is_kept: bool) -> None:
    """Make the folder, with its mark. A mark alone proves nothing, because a clone may bring it.

    Raises:
        UsageError: it has Markdown files that upwell did not write.
        StoreUnwritable: it cannot be written.
    """
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_kept:
            _refuse_foreign(root)
            write_atomically(root / MARK, "upwell reads and writes the Markdown files here.\n")
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write {root}: {error.strerror}", hint="check the path and its permissions"
        ) from error


def _refuse_foreign(root: Path) -> None:
    look = scan([State(str(root)).source], [str(root)], {})
    for path in sorted(look.present_paths):
        try:
            is_own = bool(page_in(text_of(read_bytes(path, str(root)))).id)
        except (UnreadableFile, UsageError):
            is_own = False
        if not is_own:
            raise UsageError(
                f"{root} has Markdown files of its own, like {os.path.basename(path)}",
                hint=f"name a new folder, like {root / 'upwell'}; `upwell import` reads yours",
            )


class KeptRecall(StoreRecall):
    """`Recall` over a store. If someone waits for the result, changed files are read first."""

    def __init__(self, store: Store, folder: Callable[[], MemoryFolder | None]) -> None:
        super().__init__(store)
        self._folder = folder

    async def search(self, query: Query, deadline: Deadline) -> Found:
        if query.awaited and (folder := self._folder()):
            await folder.catch_up(deadline)
        return await super().search(query, deadline)
