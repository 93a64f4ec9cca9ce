"""What a program wrote for a terminal: lines that it drew again and again, letters that it struck
twice, blanks at the ends of lines."""

import re

from upwell.ground.types import Omission

_UNDERLINED = re.compile("_\x08(?=[^\x08\n])")
_BOLD = re.compile("([^\x08\n])(?:\x08\\1)+")
_SPINNING = re.compile("(?:[|/\\\\-]\x08)+")
_PROGRESS = re.compile(
    r"\d ?%|\d+/\d+|--:--|[\u2588-\u258f\u2591-\u2593\u2501\u2578\u257a]{2}|[=#>]{4}"
    r"|[\u2800-\u28ff]|\x1b\[\d*[KG]"
)
"""Signs that a line tells how far something is: a share, a count, a bar, a spinner, an erasure."""
_CHANGING = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\b(?:\d[\d.,:]*|[kKMGT]?i?B(?:/s)?|it/s|s/it|eta|ETA)\b"
    r"|\d[\d.,:]*(?:[kKMGT]i?B?|ms|[smh])?|[^\w\s]|_|\s"
)
_TRAILING = re.compile(r"(?<![ \t])[ \t]++(?=\r?\n|\Z)")
_ENDS = (" \n", "\t\n", " \r\n", "\t\r\n")
_GAP = re.compile(r"(?:\r?\n){4,}")


def struck(text: str) -> str:
    """`text` as it would be read where letters were struck twice to be bold or underlined (manual
    pages), without what is left of a spinner."""
    if "\x08" not in text:
        return text
    return _BOLD.sub(r"\1", _UNDERLINED.sub("", _SPINNING.sub("", text)))


def redrawn(text: str) -> tuple[str, tuple[Omission, ...]]:
    """Lines that were drawn again over themselves (a carriage return, and the same words with other
    figures or another bar) as they were at last, with how often they had been drawn before. A text
    whose lines end with carriage returns alone stays."""
    if "\n" not in text or not re.search(r"\r[^\n]", text):
        return text, ()
    lines = text.split("\n")
    gone = total = 0
    for place, line in enumerate(lines):
        frames = line.rstrip("\r").split("\r")
        if len(frames) < 2:
            continue
        kept, dropped = _last_frames(frames)
        lines[place] = kept + line[len(line.rstrip("\r")) :]
        gone += dropped
        total += len(frames)
    left_out = Omission(what="states of lines that were redrawn", count=gone, total=total)
    return "\n".join(lines), (left_out,) if gone else ()


def tidy(text: str) -> str:
    """A log without blanks at the ends of its lines and with one empty line for several."""
    if any(end in text for end in _ENDS) or text[-1:] in (" ", "\t"):
        text = _TRAILING.sub("", text)
    if "\n\n\n\n" in text or "\r\n\r\n" in text:
        text = _GAP.sub("\n\n", text)
    return text


def _last_frames(frames: list[str]) -> tuple[str, int]:
    """The frames that were not drawn over by one that says the same, and how many were."""
    kept: list[str] = []
    dropped = run = 0
    for frame, following in zip(frames, [*frames[1:], None], strict=True):
        if following is not None and _same_line(frame, following):
            run += 1
            continue
        kept.append(f"{frame} […{run} redrawn]" if run else frame)
        dropped, run = dropped + run, 0
    return "\r".join(kept), dropped


def _same_line(frame: str, following: str) -> bool:
    """Is `following` the same line at a later moment?"""
    if frame == following:
        return True
    if not (_PROGRESS.search(frame) and _PROGRESS.search(following)):
        return False
    return _CHANGING.sub("", frame) == _CHANGING.sub("", following)
