"""JSON that is passed on byte for byte.

A gateway must not change JSON by accident. Number lexemes such as `1.10`, duplicate keys, key
order, escapes and unknown fields must arrive as they were sent, so nothing is decoded and
re-encoded. `RawObject` and `RawArray` hold the members of *one* level as bytes. A member is opened
only when its content is needed.

Splitting does not recurse, so deep nesting is harmless. All scans take linear time.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SPACE = re.compile(rb"[ \t\r\n]*+")
_KEY = re.compile(rb"[ \t\r\n]*+(" + _STRING + rb")[ \t\r\n]*+:[ \t\r\n]*+", re.DOTALL)
_SCALAR = re.compile(rb"(?:" + _STRING + rb"|[^\s,\[\]{}\":]++)", re.DOTALL)
_MARK = re.compile(rb'[\[\]{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
_SHORT_STRING = rb'"[^"\\]{0,4096}+(?:\\.[^"\\]{0,4096}+){0,256}+"'
_PLAIN = rb'[^\[\]{}"]++|' + _SHORT_STRING
_FLAT = rb"[\[{](?:" + _PLAIN + rb")*+[\]}]"
_BRACKET = re.compile(
    rb"[\[{](?:" + _PLAIN + rb"|" + _FLAT + rb")*+[\]}]|[\[\]{}]|" + _SHORT_STRING + rb'|"',
    re.DOTALL,
)
"""Matches a whole container of at most two levels, a single bracket, a short string, or the quote
that begins a long string. Deep input is matched in many steps, because no other thread runs during
a match."""
_ESCAPES = re.compile(rb'(?:\\.[^"\\]{0,4096}+){1,4096}+', re.DOTALL)
_QUOTE = ord('"')
_NOT_QUOTES = bytes(set(range(256)) - set(b'"\r\n'))
_OPENING = frozenset(b"[{")
_CLOSING = frozenset(b"]}")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


THREAD_BYTES = 500_000
"""Longer input is split in a thread, so that the event loop goes on."""


class NotJson(ValueError):
    """The bytes are not the expected JSON."""


def loads(raw: bytes) -> Any:
    """Decode `raw` to look at its values. Lone surrogates are kept. Raises NotJson also for values
    that are nested too deeply and for integers that are too long."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def check(raw: bytes) -> None:
    """Check that `raw` is JSON at every level; if not, raise NotJson. Values that are nested too
    deeply for the parser are accepted, and numbers may have any length."""
    try:
        json.loads(raw, parse_int=float)
    except RecursionError:
        return
    except ValueError as error:
        raise NotJson(str(error)) from error


def one_line(raw: bytes) -> bytes:
    """Replace every line ending in `raw` with a space. JSON has line endings only between tokens,
    where a space is equivalent. Without them, a reader of lines cannot find one message inside
    another. Raises NotJson if a line ends inside a string."""
    if b"\n" not in raw and b"\r" not in raw:
        return raw
    quotes = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_QUOTES)
    if b'"' in quotes.replace(b'""', b""):
        raise NotJson("a line ends inside a string")
    return raw.replace(b"\r", b" ").replace(b"\n", b" ")


def depth(raw: bytes) -> int:
    deepest = level = 0
    for mark in _MARK.finditer(raw):
        char = raw[mark.start()]
        if char in _OPENING:
            level += 1
            deepest = max(deepest, level)
        elif char in _CLOSING:
            level -= 1
    return deepest


def dumps(value: Any) -> bytes:
    """Encode our own values as compact JSON. The result is UTF-8, or ASCII with escapes if a string
    cannot be encoded in UTF-8.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


class RawObject(Struct, frozen=True):
    """One level of a JSON object. `members` has the raw keys and values in original order."""

    members: tuple[tuple[bytes, bytes], ...] = ()

    @classmethod
    async def opened(cls, raw: bytes) -> "RawObject":
        """Like `parse()`, but split long input in a thread."""
        if len(raw) <= THREAD_BYTES:
            return cls.parse(raw)
        opened = await asyncio.to_thread(cls.parse, raw)
        # Until the next step of the event loop, the thread's future would keep `opened`.
        await asyncio.sleep(0)
        return opened

    @classmethod
    def parse(cls, raw: bytes) -> "RawObject":
        """Raises NotJson if `raw` is not one JSON object."""
        return cls(_compact_members(raw) or tuple(_split(raw, b"{", b"}")))

    def get(self, name: str) -> bytes | None:
        """Return the raw value of the last member with this name, because parsers use the last one.
        Raises NotJson if the name of a member contains an invalid escape."""
        quoted = b'"%b"' % name.encode()
        for key, value in reversed(self.members):
            if key == quoted or (b"\\" in key and loads(key) == name):
                return value
        return None

    def value(self, name: str, default: Any = None) -> Any:
        """Return the decoded value of a member. Raises NotJson if the value or a name is malformed,
        or the value cannot be decoded."""
        raw = self.get(name)
        return default if raw is None else loads(raw)

    def decoded(self) -> dict[str, Any]:
        """Members that cannot be decoded, such as deeply nested ones, are left out."""
        decoded: dict[str, Any] = {}
        for key, value in self.members:
            try:
                decoded[loads(key)] = loads(value)
            except NotJson:
                continue
        return decoded

    def replaced(self, name: str, value: bytes) -> "RawObject":
        """If there is no such member, it is added at the end."""
        if any(_is(key, name) for key, _ in self.members):
            return RawObject(
                tuple((key, value if _is(key, name) else old) for key, old in self.members)
            )
        return RawObject((*self.members, (dumps(name), value)))

    def without(self, *names: str) -> "RawObject":
        return RawObject(
            tuple(
                (key, value)
                for key, value in self.members
                if not any(_is(key, name) for name in names)
            )
        )

    def encode(self) -> bytes:
        return b"{" + b",".join(key + b":" + value for key, value in self.members) + b"}"

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


class RawArray(Struct, frozen=True):
    items: tuple[bytes, ...] = ()

    @classmethod
    def parse(cls, raw: bytes) -> "RawArray":
        """Raises NotJson if `raw` is not one JSON array."""
        return cls(_compact_items(raw) or tuple(item for _, item in _split(raw, b"[", b"]")))

    def encode(self) -> bytes:
        return b"[" + b",".join(self.items) + b"]"


def kind_of(raw: bytes) -> str:
    """Return `object`, `array`, `string` or `scalar`, judging by the first byte."""
    start = _space(raw, 0)
    return {b"{": "object", b"[": "array", b'"': "string"}.get(raw[start : start + 1], "scalar")


def _is(key: bytes, name: str) -> bool:
    return key[1:-1] == name.encode() or (b"\\" in key and loads(key) == name)


def _compact_members(raw: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Like `_split()`, but many times as fast. Empty if the fast parser would lose or
    change anything: a member whose name comes again, an escape in a name, a space between members,
    a lone surrogate, deep nesting. The length of the input shows all of these."""
    try:
        found = _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    members = tuple((b'"%b"' % name.encode(), bytes(value)) for name, value in found.items())
    length = 1 + sum(len(name) + len(value) + 2 for name, value in members)
    return members if length == len(raw) else ()


def _compact_items(raw: bytes) -> tuple[bytes, ...]:
    try:
        items = tuple(map(bytes, _ARRAY.decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    return items if 1 + sum(len(item) + 1 for item in items) == len(raw) else ()


def _split(raw: bytes, opening: bytes, closing: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the raw keys and values of an object, or b"" and each item of an array."""
    offset = _space(raw, 0)
    if raw[offset : offset + 1] != opening:
        raise NotJson(f"expected {opening.decode()} at byte {offset}")
    offset = _space(raw, offset + 1)
    mark = raw[offset : offset + 1]
    while mark != closing:
        key = b""
        if opening == b"{":
            name = _KEY.match(raw, offset)
            if name is None:
                raise NotJson(f"expected a member name at byte {offset}")
            key, offset = name.group(1), name.end()
        else:
            offset = _space(raw, offset)
        end = _skip(raw, offset)
        yield key, raw[offset:end]
        offset = _space(raw, end)
        mark = raw[offset : offset + 1]
        if mark == b",":
            offset += 1
        elif mark != closing:
            raise NotJson(f"expected a comma at byte {offset}")
    if _space(raw, offset + 1) != len(raw):
        raise NotJson(f"extra data after the end, at byte {offset + 1}")


def _space(raw: bytes, offset: int) -> int:
    return _SPACE.match(raw, offset).end()  # type: ignore[union-attr]


def _skip(raw: bytes, offset: int) -> int:
    """Return the position after the value at `offset`. Brackets are only counted, so `[1}` passes
    as a value."""
    first = raw[offset : offset + 1]
    if first == b'"':
        return _string_end(raw, offset)
    if first not in (b"[", b"{"):
        scalar = _SCALAR.match(raw, offset)
        if scalar is None:
            raise NotJson(f"expected a value at byte {offset}")
        return scalar.end()
    depth, place = 0, offset
    while place >= 0:
        marks, place = _BRACKET.finditer(raw, place), -1
        for mark in marks:
            char, is_whole = raw[mark.start()], mark.end() - mark.start() > 1
            if char == _QUOTE:
                if is_whole:
                    continue
                place = _string_end(raw, mark.start())
                break
            depth += 0 if is_whole else 1 if char in _OPENING else -1
            if depth == 0:
                return mark.end()
    raise NotJson(f"the value at byte {offset} does not end")


def _string_end(raw: bytes, start: int) -> int:
    """A string, such as an image, may be megabytes long. Its end is found with `find()`, because
    all other threads would wait for a regex match."""
    place = start + 1
    quote = raw.find(b'"', place)
    while quote >= 0:
        escape = raw.find(b"\\", place, quote)
        if escape < 0:
            return quote + 1
        escapes = _ESCAPES.match(raw, escape)
        if escapes is None:
            break
        place = escapes.end()
        if place > quote:
            quote = raw.find(b'"', place)
    raise NotJson(f"the string at byte {start} does not end")
