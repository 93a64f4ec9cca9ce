"""Views of a text without escapes, and a mapping from positions in a view to the original.

A secret in a JSON string, a URL, a web page or a coloured log may have escapes around and inside
it. The rules find such a secret only after the escapes have been removed. This module also decodes
runs of Base64, which may contain secrets.
"""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from operator import eq
from typing import Any

from msgspec import Struct

_ESCAPES = (
    rb"\x1b(?:\[[0-9;:?]{0,40}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))",
    rb"\\u\{?[0-9A-Fa-f]{4}\}?",
    rb"\\(?:x[0-9A-Fa-f]{2}|0?33|e)(?:\[[0-9;]{0,20}m)?",
    rb"\\[nrtbf\"'/\\`]",
    rb"%(?:25)?[0-9A-Fa-f]{2}",
    rb"&(?:amp;)?(?:lt|gt|amp|quot|apos|nbsp|#[0-9]{1,4}|#[xX][0-9A-Fa-f]{1,4});",
    rb"\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf|\xc2\xad|\xcd\x8f",
)
_ENTITIES = {b"lt": b"<", b"gt": b">", b"amp": b"&", b"quot": b'"', b"apos": b"'", b"nbsp": b" "}
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b" ", b"f": b" "}
_ASCII_SIGNS = (b"\\", b"%", b"&", b"\x1b")
_SIGNS = (*_ASCII_SIGNS, b"\xe2", b"\xef\xbb\xbf", b"\xc2\xad", b"\xcd\x8f")
_WRAPPED = rb"(?m)^[ \t>+-]{0,8}[A-Za-z0-9+/=_.:-]{16,200}(\r?\n[ \t>+-]{0,8})[A-Za-z0-9+/=_-]"
MAX_PASSES = 5
MIN_WIDTH, MAX_WIDTH = 16, 400
"""The widths, in bytes, of the narrowest and widest terminals that are recognised."""
MIN_BASE64 = 24
_BASE64 = rb"[A-Za-z0-9+/_-]{%d,}={0,2}" % MIN_BASE64
MAX_BASE64 = 262_144


class View(Struct, frozen=True):
    """A changed copy of a text. The piece that begins at `at[i]` in `data` begins at `origin[i]` in
    the original text.
    """

    data: bytes
    at: tuple[int, ...]
    origin: tuple[int, ...]

    def start(self, position: int) -> int:
        """Return the position in the original of the byte at `position`."""
        index = bisect_right(self.at, position) - 1
        return self.origin[index] + position - self.at[index]

    def end(self, position: int) -> int:
        """Return where a range that ends at `position` ends in the original."""
        return self.start(position - 1) + 1


def plain(data: bytes) -> View | None:
    """Return `data` without escapes, or None if it has none. Nested escapes are also removed. For
    example, a colour code in a log takes three passes if the log is in JSON within other JSON."""
    view: View | None = None
    for _ in range(MAX_PASSES):
        inner = _unescaped(view.data if view else data)
        if inner is None:
            break
        origin = tuple(map(view.start, inner.origin)) if view else inner.origin
        view = View(inner.data, inner.at, origin)
    return view


def unwrapped(data: bytes) -> View | None:
    """Return `data` with the lines of wrapped tokens joined, or None if nothing is wrapped."""
    if b"\n" not in data:
        return None
    line_breaks = []
    position = 0
    while (match := _regex(_WRAPPED).search(data, position)) is not None:
        line_breaks.append((*match.span(1), b""))
        position = match.end(1)
    return _substituted(data, line_breaks) if line_breaks else None


def unfolded(data: bytes) -> View | None:
    """Return the lines of `data` that a terminal seems to have wrapped, each joined with the next
    line, or None if there are none. The view contains no other lines.

    A line seems wrapped if it is as long as the line before or after it or is one of the longest,
    its length could be the width of a terminal, and the next line is neither empty nor longer.
    """
    if b"\n" not in data:
        return None
    lines = data.split(b"\n")
    sizes = list(map(len, lines))
    full = _full_lines(sizes)
    if not full:
        return None
    starts = list(accumulate((size + 1 for size in sizes), initial=0))
    pieces: list[bytes] = []
    origins: list[int] = []
    for number in sorted(full | {number + 1 for number in full}):
        line = lines[number]
        pieces.append(line.removesuffix(b"\r") if number in full else line + b"\n")
        origins.append(starts[number])
    at = tuple(accumulate(map(len, pieces[:-1]), initial=0))
    return View(b"".join(pieces), at, tuple(origins))


def _full_lines(sizes: list[int]) -> set[int]:
    """Return the numbers of the lines that seem to fill the width of a terminal."""
    longest = max(sizes)
    found: set[int] = set()
    for number, is_equal in enumerate(map(eq, sizes, sizes[1:])):
        if is_equal:
            found |= {number, number + 1}
    if longest <= MAX_WIDTH:
        found |= {number for number, size in enumerate(sizes) if size == longest}
    return {
        number
        for number in found
        if MIN_WIDTH <= sizes[number] <= MAX_WIDTH
        and number + 1 < len(sizes)
        and 0 < sizes[number + 1] <= sizes[number]
    }


def decoded(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the start, the end and the decoded text of the runs of Base64 that contain text. Very
    long runs and runs in lower case are skipped."""
    if len(data) < MIN_BASE64:
        return
    for match in _regex(_BASE64).finditer(data):
        start, end = match.span()
        run = data[start:end]
        if run.islower() or len(run) > MAX_BASE64:
            continue
        if text := _text_of(run):
            yield start, end, text


def _text_of(run: bytes) -> bytes:
    standard = run.rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    if not _is_text(_from_base64(standard[:24])):
        return b""
    text = _from_base64(standard)
    return text if _is_text(text) else b""


def _from_base64(run: bytes) -> bytes:
    odd = len(run) % 4
    padded = run[: len(run) - 1] if odd == 1 else run + b"=" * (-odd % 4)
    try:
        return base64.b64decode(padded)
    except binascii.Error:
        return b""


def _is_text(data: bytes) -> bool:
    return bool(data) and data.isascii() and not data.translate(None, _PRINTABLE)


_PRINTABLE = bytes([9, 10, 13, *range(32, 127)])


def _unescaped(data: bytes) -> View | None:
    signs = _ASCII_SIGNS if data.isascii() else _SIGNS
    if not any(map(data.__contains__, signs)):
        return None
    escapes = [
        (*match.span(), _replacement(match.group()))
        for match in _regex(b"|".join(_ESCAPES)).finditer(data)
    ]
    return _substituted(data, escapes) if escapes else None


def _replacement(escape: bytes) -> bytes:
    """Return the text that an escape represents. Terminal codes and invisible characters represent
    no text.
    """
    kind, rest = escape[:1], escape[1:]
    if kind == b"%":
        return _byte(rest.removeprefix(b"25") if len(rest) == 4 else rest)
    if kind == b"&":
        name = (rest.removeprefix(b"amp;") or rest).rstrip(b";")
        if not name.startswith(b"#"):
            return _ENTITIES[name]
        digits, base = (name[2:], 16) if name[1:2] in b"xX" else (name[1:], 10)
        return chr(int(digits, base)).encode("utf-8", "surrogatepass")
    # `\033`, `\33` and `\e` mean ESC, and `[` begins the colour code after ESC.
    if kind != b"\\" or rest[:1] in (b"0", b"3", b"e") or b"[" in rest:
        return b""
    if rest[:1] == b"u":
        return chr(int(rest[1:].strip(b"{}"), 16)).encode("utf-8", "surrogatepass")
    return _byte(rest[1:]) if rest[:1] == b"x" else _CONTROLS.get(rest, rest)


def _byte(digits: bytes) -> bytes:
    value = int(digits, 16)
    return b"" if value == 0x1B else bytes([value])


def _substituted(data: bytes, substitutions: list[tuple[int, int, bytes]]) -> View:
    """`substitutions`: (start, end, replacement), in order and without overlaps."""
    pieces, origins = [], []
    position = 0
    for start, end, replacement in substitutions:
        pieces += [data[position:start], replacement]
        origins += [position, max(start, end - len(replacement))]
        position = end
    pieces.append(data[position:])
    origins.append(position)
    starts = accumulate(map(len, pieces), initial=0)
    placed = [
        (start, origin)
        for start, origin, piece in zip(starts, origins, pieces, strict=False)
        if piece
    ]
    return View(
        b"".join(pieces),
        tuple(start for start, _ in placed) or (0,),
        tuple(origin for _, origin in placed) or (0,),
    )


@lru_cache(maxsize=8)
def _regex(pattern: bytes) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(pattern, options)
