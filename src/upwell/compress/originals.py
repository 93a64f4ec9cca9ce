"""Store the original (the full text) of a shortened response under a key until it expires.

A key is an HMAC of the principal, the text and its name, so it cannot be guessed. The
same response always gets the same key, which prompt caches depend on. A text is stored in parts, so
that a chunk of a long text can be read without the rest. A text that contains a secret stays in
memory and is never written to disk. Parts in memory are compressed.
"""

import asyncio
import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from upwell.compress.options import CompressOptions
from upwell.ground.errors import KeyUnknown, StoreError
from upwell.ground.ledger import EntryKind, TtlStore, file_bytes

KIND = EntryKind.ORIGINAL
PART_CHARS = 262_144
PATIENCE_SECONDS = 0.2
"""Writing a part may wait this long for the disk, which another process may have locked. After that
the original is stored in memory instead."""
SECRET, BUSY = "It contains a secret", "The disk is busy"
MAX_BYTES = 256_000_000
"""Disk space for originals; the oldest originals are evicted first."""
LARGE = "It is too large to be stored on disk"
_PACK_LEVEL = 1
"""The fastest level of zlib (100 MB/s). It shrinks program output to a fifth or less."""
_KEY_HEX = 16
_KEY = re.compile(rf"[0-9a-f]{{{_KEY_HEX}}}")


class StoredOriginal(Struct, frozen=True):
    """The description of an original: its `key`, its length in `chars` and in `parts`, and its
    `name` (a path, URL or tool).

    If the original is only in the memory of this process, `private` gives the reason. If it is on
    disk, `private` is "" and it takes `disk_bytes` there. An original whose `key` is "" cannot be
    read.
    """

    key: str
    chars: int
    parts: int
    name: str = ""
    private: str = ""
    disk_bytes: int = 0


class Originals:
    """Stores originals in `durable`, which survives a restart, or in `private` (in memory).

    `secret` is for the keys, at least 16 bytes. `has_secret` returns whether a text contains a
    secret and must not be written to disk. `durable` has room for `max_bytes`. Storing and reading
    raise `StoreError` if the database fails. Reading raises `KeyUnknown` if the original or a part
    of it expired, was evicted, or never existed.
    """

    def __init__(
        self,
        *,
        durable: TtlStore,
        private: TtlStore,
        secret: bytes,
        has_secret: Callable[[str], bool],
        options: CompressOptions | None = None,
        principal: str = "",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._durable = durable
        self._private = private
        self._secret = secret
        self._has_secret = has_secret
        options = options or CompressOptions()
        self._ttl, self._max_bytes = options.original_ttl_seconds, max_bytes
        self._principal = principal

    def key_of(self, text: str, name: str = "") -> str:
        """Return the key under which `text` is or would be stored."""
        digest = hmac.new(self._secret, digestmod=hashlib.sha256)
        principals = (self._principal,) if self._principal else ()
        for part in (*principals, name, text):
            digest.update(b"\0")
            digest.update(part.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:_KEY_HEX]

    def is_secret(self, text: str) -> bool:
        """Return whether `text` contains a secret."""
        return self._has_secret(text)

    async def keep(
        self, text: str, name: str = "", beside: Sequence[StoredOriginal] = ()
    ) -> StoredOriginal:
        """Store `text` with its `name` (a path, URL or tool).

        `beside` contains the other originals of the same result. If the disk space for originals is
        too small for all of them, this original stays in memory.
        """
        key = self.key_of(text, name)
        private = SECRET if await asyncio.to_thread(self._has_secret, text) else ""
        parts = [text[start : start + PART_CHARS] for start in range(0, len(text), PART_CHARS)]
        original = StoredOriginal(key, len(text), len(parts), name, private)
        if not private:
            disk_bytes = sum(_disk_bytes(key, part) for part in (*parts, _description(original)))
            if disk_bytes + sum(other.disk_bytes for other in beside) > self._max_bytes:
                private = LARGE
        if not private:
            try:
                await self._put(self._durable, original, parts)
                return replace(original, disk_bytes=disk_bytes)
            except TimeoutError:
                private = BUSY
        original = replace(original, private=private)
        await self._put(self._private, original, parts)
        return original

    async def readable(self, originals: Sequence[StoredOriginal]) -> list[StoredOriginal]:
        """Return the originals of one result. If an original will not be readable later (memory had
        no room for it, or it expires immediately), its key is removed."""
        return [
            original if await self._is_readable(original) else replace(original, key="", private="")
            for original in originals
        ]

    async def _is_readable(self, original: StoredOriginal) -> bool:
        if self._ttl <= 0:
            return False
        if not original.private:
            return True
        numbers = [None, *range(original.parts)]
        names = [self._entry_key(original.key, number) for number in numbers]
        return len(await self._private.get(KIND, names)) == len(names)

    async def _put(
        self, ttl_store: TtlStore, original: StoredOriginal, parts: Sequence[str]
    ) -> None:
        """Write an original. Raises TimeoutError if writing a part takes too long."""
        description = _description(original).encode()
        # The description is written last, so that every original that can be found is complete.
        for number, part in chain(enumerate(parts), [(None, "")]):
            value = description if number is None else part.encode("utf-8", "surrogatepass")
            if number is not None and ttl_store is self._private:
                value = await asyncio.to_thread(zlib.compress, value, _PACK_LEVEL)
            values = {self._entry_key(original.key, number): value}
            async with asyncio.timeout(PATIENCE_SECONDS):
                await ttl_store.put(KIND, values, ttl_seconds=self._ttl)

    def _decoded(self, ttl_store: TtlStore, value: bytes) -> str:
        raw = zlib.decompress(value) if ttl_store is self._private else value
        return raw.decode("utf-8", "surrogatepass")

    async def find(self, key: str) -> StoredOriginal:
        """Describe the original under `key` without reading it, and restart its time to live.
        `private` and `disk_bytes` have their default values."""
        return (await self._locate(key))[1]

    async def get(self, key: str) -> str:
        """Return the whole original."""
        return await self.slice(key, 0, None)

    async def slice(self, key: str, start: int, end: int | None) -> str:
        """Return `text[start:end]` of the original. Only the parts that are needed are read."""
        ttl_store, original = await self._locate(key)
        stop = original.chars if end is None else min(end, original.chars)
        if start >= stop:
            return ""
        first, last = start // PART_CHARS, (stop - 1) // PART_CHARS
        names = [self._entry_key(key, number) for number in range(first, last + 1)]
        items = await ttl_store.get(KIND, names)
        if len(items) < len(names):
            raise KeyUnknown(key)
        values = [items[name].value for name in names]
        text = "".join(
            [await asyncio.to_thread(self._decoded, ttl_store, value) for value in values]
        )
        return text[start - first * PART_CHARS : stop - first * PART_CHARS]

    def of(self, principal: str) -> "Originals":
        """Return the originals of another principal. Each principal has different keys."""
        if principal == self._principal:
            return self
        other = copy(self)
        other._principal = principal
        return other

    def _entry_key(self, key: str, number: int | None = None) -> str:
        owner = f"{self._principal}@" if self._principal else ""
        return f"{owner}{key}" if number is None else f"{owner}{key}/{number}"

    async def _touch(self, ttl_store: TtlStore, entry_keys: Sequence[str]) -> None:
        """Restart the time to live of these entries. If this fails, the original is still read."""
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                for entry_key in entry_keys:
                    await ttl_store.touch(KIND, entry_key, ttl_seconds=self._ttl)

    async def _locate(self, key: str) -> tuple[TtlStore, StoredOriginal]:
        if not _KEY.fullmatch(key):
            raise KeyUnknown(key[:40])
        for ttl_store in (self._private, self._durable):
            entry_key = self._entry_key(key)
            item = (await ttl_store.get(KIND, [entry_key])).get(entry_key)
            if item is not None and item.value:
                chars, parts, name = json.loads(item.value)
                entry_keys = [*(self._entry_key(key, number) for number in range(parts)), entry_key]
                await self._touch(ttl_store, entry_keys)
                return ttl_store, StoredOriginal(key, chars, parts, name)
        raise KeyUnknown(key)


def _description(original: StoredOriginal) -> str:
    return json.dumps([original.chars, original.parts, original.name])


def _disk_bytes(key: str, value: str) -> int:
    """Return the disk space of an entry. The entry's name is `key` plus the principal and the
    part's number, which together are assumed to be no longer than `key`."""
    return file_bytes(2 * len(key) + len(value.encode("utf-8", "surrogatepass")))
