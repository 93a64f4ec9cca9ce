"""Remove noise that is meant for a terminal or a browser: redrawn lines, overstruck letters,
invisible characters, trailing blanks, embedded images.

The steps depend on the kind of text. Code, fenced blocks in Markdown, JSON, tables, diffs, git logs
and search results are left unchanged.
"""

import re
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.types.compression import Omission, Passage, TextKind

_BREAKING = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""The letters of Thai, Lao, Burmese and Khmer, which use a zero-width space between words."""
_INVISIBLE = re.compile(
    rf"[\ufeff\u2060\x00\x07\x0e\x0f\x7f]|\x1b[()][AB012]|\x1b[=>78]"
    rf"|(?<![{_BREAKING}])\u200b(?![{_BREAKING}])"
)
_MAY_BE_INVISIBLE = re.compile("[\ufeff\u2060\u200b\x00\x07\x0e\x0f\x7f\x1b]")


def without_invisible(text: str) -> str:
    """Remove invisible characters outside fenced blocks."""
    if not _MAY_BE_INVISIBLE.search(text):
        return text
    return change_outside_fences(text, lambda part: _INVISIBLE.sub("", part))


_DATA = re.compile(
    r"(data:[\w.+/-]*+(?:;(?!base64,)[\w=.+-]++)*+;base64,)([A-Za-z0-9+/=]{200,}+)", re.I
)


def without_embedded_data(text: str) -> tuple[str, tuple[Omission, ...]]:
    """Replace long base64 data outside fenced blocks with its size, as in `[…9,120 chars]`."""
    if ";base64," not in text:
        return text, ()
    sizes: list[int] = []

    def shorten(match: re.Match[str]) -> str:
        sizes.append(len(match[2]))
        return f"{match[1]}[…{len(match[2]):,} chars]"

    shorter = change_outside_fences(text, lambda part: _DATA.sub(shorten, part))
    chars = sum(sizes)
    left_out = Omission(what="characters of embedded data", count=chars, total=chars)
    return shorter, (left_out,) if sizes else ()


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.M)


def change_outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the text outside fenced blocks. An unclosed block extends to the end."""
    parts: list[str] = []
    offset = 0
    while (opening := _FENCE.search(text, offset)) is not None:
        end = _end(text, opening)
        parts += [change(text[offset : opening.start()]), text[opening.start() : end]]
        offset = end
    parts.append(change(text[offset:]))
    return "".join(parts)


def _end(text: str, opening: re.Match[str]) -> int:
    mark = opening[1]
    for closing in _FENCE.finditer(text, opening.end()):
        if closing[1][0] == mark[0] and len(closing[1]) >= len(mark):
            return closing.end()
    return len(text)


_UNDERLINED = re.compile("_\x08(?=[^\x08\n])")
_BOLD = re.compile("([^\x08\n])(?:\x08\\1)+")
_SPINNING = re.compile("(?:[|/\\\\-]\x08)+")
_PROGRESS = re.compile(
    r"\d ?%|\d/\d|--:--|[\u2588-\u258f\u2591-\u2593\u2501\u2578\u257a]{2}|[=#>]{4}"
    r"|[\u2800-\u28ff]|\x1b\[\d*[KG]"
)
"""What a progress line contains: a percentage, a count, a bar, a spinner or an erasure."""
_CHANGING = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\b(?:\d[\d.,:]*|[kKMGT]?i?B(?:/s)?|it/s|s/it|eta|ETA)\b"
    r"|\d[\d.,:]*(?:[kKMGT]i?B?|ms|[smh])?|[^\w\s]|_|\s"
)
_TRAILING = re.compile(r"(?<![ \t])[ \t]++(?=\r?\n|\Z)")
_ENDS = (" \n", "\t\n", " \r\n", "\t\r\n")
_GAP = re.compile(r"(?:\r?\n){4,}")


def without_overstrikes(text: str) -> str:
    """Remove spinners, and the backspaces that manual pages use for bold and underlined letters."""
    if "\x08" not in text:
        return text
    return _BOLD.sub(r"\1", _UNDERLINED.sub("", _SPINNING.sub("", text)))


def without_redraws(text: str) -> tuple[str, tuple[Omission, ...]]:
    """Reduce each line that was redrawn after a carriage return to its last state.

    The line then shows how many earlier states it had. A line counts as redrawn if its words stay
    the same and only figures or a bar change. A text with carriage returns as line endings is left
    unchanged.
    """
    if "\n" not in text or not re.search(r"\r[^\n]", text):
        return text, ()
    lines = text.split("\n")
    redraws = total = 0
    for number, line in enumerate(lines):
        frames = line.rstrip("\r").split("\r")
        if len(frames) < 2:
            continue
        retained, dropped = _last_frames(frames)
        lines[number] = retained + line[len(line.rstrip("\r")) :]
        redraws += dropped
        total += len(frames)
    left_out = Omission(what="states of lines that were redrawn", count=redraws, total=total)
    return "\n".join(lines), (left_out,) if redraws else ()


def without_extra_blanks(text: str) -> str:
    """Remove trailing whitespace from lines, and reduce three or more empty lines to one."""
    if any(end in text for end in _ENDS) or text[-1:] in (" ", "\t"):
        text = _TRAILING.sub("", text)
    if "\n\n\n\n" in text or "\r\n\r\n" in text:
        text = _GAP.sub("\n\n", text)
    return text


def _last_frames(frames: list[str]) -> tuple[str, int]:
    """Return the states of a line that no later state replaces, and the number of the others."""
    retained: list[str] = []
    dropped = run = 0
    for frame, next_frame in zip(frames, [*frames[1:], None], strict=True):
        if next_frame is not None and _same_line(frame, next_frame):
            run += 1
            continue
        retained.append(f"{frame} […{run} redrawn]" if run else frame)
        dropped, run = dropped + run, 0
    return "\r".join(retained), dropped


def _same_line(frame: str, next_frame: str) -> bool:
    if frame == next_frame:
        return True
    if not (_PROGRESS.search(frame) and _PROGRESS.search(next_frame)):
        return False
    return _CHANGING.sub("", frame) == _CHANGING.sub("", next_frame)


_SNAPSHOT = 0.2
"""A text is a snapshot of a page if more than this share of its lines have a reference."""
_EMPTY_GROUP = re.compile(
    r"^[ \t]*+- (?:generic|group|list|listitem|main|banner|navigation|contentinfo|separator|img"
    r"|paragraph|article|region|row|rowgroup|cell|table)(?: \[(?!cursor)[^\]\n]++\])*+:?[ \t]*+\n",
    re.M,
)
_CLICKABLE = re.compile(r"^([ \t]*+- '?(?:link|button)\b[^\n]*?) \[cursor=pointer\]", re.M)
_INDENTED = re.compile(r"^(?:  )+", re.M)


def without_empty_groups(text: str) -> tuple[str, tuple[Omission, ...]]:
    """Remove the groups without a name and text from the snapshot of a page. The indentation of
    the rest is halved, and links and buttons are no longer marked as clickable."""
    if text.count("[ref=") <= _SNAPSHOT * (1 + text.count("\n")):
        return text, ()
    shorter, groups = _EMPTY_GROUP.subn("", text)
    if not groups:
        return text, ()
    shorter = _CLICKABLE.sub(r"\1", _INDENTED.sub(lambda m: " " * (len(m[0]) // 2), shorter))
    left_out = Omission(what="groups without a name", count=groups, total=groups)
    return shorter, (left_out,)


Step = Callable[[str], tuple[str, tuple[Omission, ...]]]
"""Removes one kind of noise. Returns the text, and the omissions to report."""


def _silently(step: Callable[[str], str]) -> Step:
    return lambda text: (step(text), ())


_SCREEN: tuple[Step, ...] = (
    _silently(without_overstrikes),
    without_redraws,
    _silently(without_invisible),
)
_LOGS: tuple[Step, ...] = (*_SCREEN, _silently(without_extra_blanks))
_PAGES: tuple[Step, ...] = (without_embedded_data, _silently(without_invisible))

STEPS: dict[TextKind, tuple[Step, ...]] = {
    TextKind.TEXT: (*_SCREEN, without_empty_groups),
    TextKind.LOG: _LOGS,
    TextKind.TEST_OUTPUT: _LOGS,
    TextKind.STACK_TRACE: _LOGS,
    TextKind.MARKDOWN: _PAGES,
    TextKind.API_DOCS: _PAGES,
    TextKind.HTML: _PAGES,
}
"""The cleaning steps for each kind. Other kinds of text are left unchanged."""


class Cleaned(Struct, frozen=True):
    """A `passage` without noise, and the omissions to report."""

    passage: Passage
    omitted: tuple[Omission, ...] = ()


def clean(passage: Passage) -> Cleaned:
    """Remove the noise that is usual in text of this kind."""
    text, omitted = passage.text, ()  # type: tuple[str, tuple[Omission, ...]]
    for step in STEPS.get(passage.kind, ()):
        text, left_out = step(text)
        omitted = (*omitted, *left_out)
    return Cleaned(passage if text == passage.text else replace(passage, text=text), omitted)
