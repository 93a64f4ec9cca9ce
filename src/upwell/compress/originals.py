"""Originals: every shortened text in full, under a key, until it expires or is evicted.

A key is an HMAC of the content with a secret of this home, bound to the tenant and to who asked:
the same response has the same key (prompt caches depend on it), and nobody can guess one. The
text stands on the shelf in parts, so that reading a chunk of 50 MB reads that chunk, and reading
on never rewrites anything but the time at which it expires. A text with a secret in it never
touches the disk.
"""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain

from upwell.compress.base import Options
from upwell.ground.errors import KeyUnknown, StoreError
from upwell.ground.shelf import Shelf
from upwell.ground.types import DEFAULT_TENANT

KIND = "original"
PART_CHARS = 262_144
PATIENCE_SECONDS = 0.2
"""So long a call waits for the disk, where somebody else may hold the file; then memory serves."""
SECRET, BUSY = "It holds a secret", "The disk is busy"
_KEY_HEX = 16
_KEY = re.compile(rf"[0-9a-f]{{{_KEY_HEX}}}")


@dataclass(frozen=True, slots=True)
class Kept:
    """An original that is kept: its length in characters, and what was said of it at `keep`.
    `private` says why it lives no longer than this process, "" where it stands on the disk."""

    key: str
    chars: int
    parts: int
    name: str = ""
    private: str = ""


class Originals:
    """Originals on a shelf. `durable` survives a restart, `private` lives in this process only.

    `secret` is this home's own, at least 16 bytes; `has_secret` says of a text whether it may
    not be written down.
    """

    def __init__(
        self,
        *,
        durable: Shelf,
        private: Shelf,
        secret: bytes,
        has_secret: Callable[[str], bool],
        options: Options | None = None,
        tenant: str = DEFAULT_TENANT,
        principal: str = "",
    ) -> None:
        self._durable = durable
        self._private = private
        self._secret = secret
        self._has_secret = has_secret
        self._ttl = (options or Options()).original_ttl_seconds
        self._tenant = tenant
        self._principal = principal

    def key_of(self, text: str, name: str = "") -> str:
        """The key under which `text` is or would be kept."""
        digest = hmac.new(self._secret, self._tenant.encode(), hashlib.sha256)
        bound = (self._principal,) if self._principal else ()
        for part in (*bound, name, text):
            digest.update(b"\0")
            digest.update(part.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:_KEY_HEX]

    def is_secret(self, text: str) -> bool:
        """May this not be written down?"""
        return self._has_secret(text)

    async def keep(self, text: str, name: str = "") -> Kept:
        """Keep `text`; `name` (a path, URL or tool) is given back with it. Parts go first, so a
        key that can be found can be read."""
        key = self.key_of(text, name)
        private = SECRET if await asyncio.to_thread(self._has_secret, text) else ""
        parts = [text[at : at + PART_CHARS] for at in range(0, len(text), PART_CHARS)]
        kept = Kept(key, len(text), len(parts), name, private=private)
        if not private:
            try:
                await self._put(self._durable, kept, parts)
                return kept
            except TimeoutError:
                kept = replace(kept, private=BUSY)
        await self._put(self._private, kept, parts)
        return kept

    async def _put(self, shelf: Shelf, kept: Kept, parts: Sequence[str]) -> None:
        """Write it down.

        Raises:
            TimeoutError: a part of it took too long.
        """
        about = json.dumps([kept.chars, kept.parts, kept.name]).encode()
        raw = (part.encode("utf-8", "surrogatepass") for part in parts)
        for place, value in chain(enumerate(raw), [(None, about)]):
            values = {self._place(kept.key, place): value}
            async with asyncio.timeout(PATIENCE_SECONDS):
                await shelf.put(KIND, values, ttl_seconds=self._ttl)

    async def find(self, key: str) -> Kept:
        """What is kept under `key`, without reading it. Gives it its time of life anew.

        Raises:
            KeyUnknown: it expired, was evicted, or never was.
        """
        return (await self._found(key))[1]

    async def get(self, key: str) -> str:
        """The whole original.

        Raises:
            KeyUnknown: it, or a part of it, is gone.
        """
        return await self.slice(key, 0, None)

    async def slice(self, key: str, start: int, end: int | None) -> str:
        """The characters `start` … `end` of the original, reading only the parts they stand in.

        Raises:
            KeyUnknown: it, or a part of it, is gone.
        """
        shelf, kept = await self._found(key)
        stop = kept.chars if end is None else min(end, kept.chars)
        if start >= stop:
            return ""
        first, last = start // PART_CHARS, (stop - 1) // PART_CHARS
        names = [self._place(key, number) for number in range(first, last + 1)]
        found = await shelf.get(KIND, names)
        if len(found) < len(names):
            raise KeyUnknown(key)
        text = "".join(found[name].value.decode("utf-8", "surrogatepass") for name in names)
        return text[start - first * PART_CHARS : stop - first * PART_CHARS]

    def of(self, principal: str) -> "Originals":
        """The originals of somebody else: a key of one opens nothing for another."""
        if principal == self._principal:
            return self
        other = copy(self)
        other._principal = principal
        return other

    def _place(self, key: str, number: int | None = None) -> str:
        """Where an original stands on the shelf, or a part of it."""
        owner = f"{self._principal}@" if self._principal else ""
        return f"{owner}{key}" if number is None else f"{owner}{key}/{number}"

    async def _touch(self, shelf: Shelf, places: Sequence[str]) -> None:
        """Give them their time of life anew. What cannot be written then is read all the same."""
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                for place in places:
                    await shelf.touch(KIND, place, ttl_seconds=self._ttl)

    async def _found(self, key: str) -> tuple[Shelf, Kept]:
        if not _KEY.fullmatch(key):
            raise KeyUnknown(key[:40])
        for shelf in (self._private, self._durable):
            place = self._place(key)
            item = (await shelf.get(KIND, [place])).get(place)
            if item is not None and item.value:
                chars, parts, name = json.loads(item.value)
                places = [*(self._place(key, number) for number in range(parts)), place]
                await self._touch(shelf, places)
                return shelf, Kept(key, chars, parts, name)
        raise KeyUnknown(key)
