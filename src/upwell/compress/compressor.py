"""The entry point of compression.

A `Compressor` detects the kind of a passage and removes noise that is meant for a terminal or a
browser (`clean()`, below it, with the `STEPS` for each kind). It then tries lossless forms, the
strategy, and the fallback ladder, in this order. The result is within the budget, whose soft limits
the retention floor may raise. There are three exceptions: `none`, tables of contents (`selective`),
and JSON that stays valid only over budget (a long number, or `{}` in a tiny budget).
"""

import math
import re
from collections.abc import Callable

from msgspec.structs import replace

from upwell.compress.base import NO_TOOLS, Fitted, RemainingBudget, Tools, outcome, whole
from upwell.compress.folding import plain_start, without_numbers
from upwell.compress.lossless import normalise
from upwell.compress.options import CompressOptions, check, load
from upwell.ground.errors import CompressionError
from upwell.ground.text.kind import detect, is_snapshot
from upwell.ground.text.tokens import count
from upwell.ground.types.compression import Attempt, Budget, Compressed, Omission, Passage, TextKind

LADDER = ("progressive", "hybrid", "truncate")
"""The strategies to try, in this order, when the chosen strategy fails, or when its result is over
budget or below the retention floor. (The floor is the share of a text that must be delivered if its
original is not stored.) The order comes from seed 002 (tests/NAMES.md)."""
_FALLBACK_KINDS = {"hybrid": frozenset((TextKind.MARKDOWN, TextKind.API_DOCS, TextKind.CODE))}
"""The kinds of text for which a strategy is a fallback. A strategy that is not listed is a fallback
for every kind."""
MAY_EXCEED = frozenset({"selective", "progressive"})
"""Strategies whose results are useless without the key of the original, and are not checked against
the budget. A table of contents (`selective`) must list all sections. `progressive` fits its chunk
to the budget itself."""
_AS_RECEIVED = frozenset({"selective", "progressive", "llm_summary", "none"})
"""Strategies that work on the text as received, without cleaning or lossless rewriting."""
_NUMBERED = frozenset(
    (
        TextKind.CODE,
        TextKind.MARKDOWN,
        TextKind.API_DOCS,
        TextKind.CSV,
        TextKind.LOG,
        TextKind.TEST_OUTPUT,
        TextKind.TEXT,
    )
)
"""Kinds of text whose omission marks give line numbers. Search results, diffs and stack traces
contain line numbers of their own.
"""
_ROOM_ABOVE_FLOOR = 1.05
"""The soft budget is raised to at least this multiple of the retention floor. Selecting whole units
leaves up to 3 % of a budget unused, and the result must still reach the floor.
"""
_PAGE_FILES = (".html", ".htm", ".xhtml", ".vue", ".svelte")


class Compressor:
    """Fits passages to budgets. Stateless; safe to call from any thread."""

    def __init__(self, options: CompressOptions | None = None, tools: Tools = NO_TOOLS) -> None:
        self._options = options or CompressOptions()
        self._tools = replace(tools, llm_timeout_seconds=self._options.llm_timeout_seconds)

    def compress(self, passage: Passage, budget: Budget, strategy: str | None = None) -> Compressed:
        """Fit `passage` into `budget`.

        If `passage.kind` is TEXT, the kind is detected here. If `passage.key` is set, the agent can
        read the original, so the retention floor of the budget does not apply.

        Raises:
            UsageError: no strategy has this name.
        """
        name = strategy or self._options.strategy
        check(name)
        budget = _with_floor(passage, budget)
        remaining = RemainingBudget.of(budget)
        if name == "none" or (remaining.holds(passage.text) and name not in MAY_EXCEED):
            return whole(passage)
        if name in _AS_RECEIVED:
            return self._try_ladder(_with_kind(passage), budget, name)
        cleaned, omitted = clean(_with_kind(without_numbers(passage)))
        result = self._fitted(_with_line_numbers(cleaned, passage.text), budget, name)
        return _against_input(passage, _with_omissions(result, omitted))

    def _fitted(self, passage: Passage, budget: Budget, name: str) -> Compressed:
        remaining = RemainingBudget.of(budget)
        if remaining.holds(passage.text):
            strategy = "truncate" if name == "auto" else name
            return outcome(passage, Fitted(passage.text), strategy, lossless=True)
        normal = normalise(passage, remaining, name)
        if normal.whole is None:
            result = self._try_ladder(normal.passage, budget, name)
            return _with_omissions(result, normal.omitted)
        share = normal.whole.after / max(1, len(passage.text))
        if not normal.whole.omitted or share >= _floor(passage, budget):
            return normal.whole
        return self._try_ladder(passage, budget, name)

    def _try_ladder(self, passage: Passage, budget: Budget, name: str) -> Compressed:
        """Climb the ladder. If the result is below the retention floor, climb again with larger
        soft limits. The floor counts characters, so a result that fills a token budget may be below
        it.
        """
        result = self._climb(passage, budget, name)
        floor, share = _floor(passage, budget), result.after / max(1, result.before)
        if result.lossless or not 0.0 < share < floor:
            return result
        larger = _raised(budget, floor * _ROOM_ABOVE_FLOOR / share)
        if RemainingBudget.of(larger) == RemainingBudget.of(budget):
            return result
        return self._climb(passage, larger, name)

    def _climb(self, passage: Passage, budget: Budget, name: str) -> Compressed:
        remaining = RemainingBudget.of(budget)
        tried: list[Attempt] = []
        best: Compressed | None = None
        # A failed summary falls back to `truncate`, which covers more of the text than the first
        # chunk of `progressive` (as in seed 002, tests/NAMES.md).
        ladder = ("truncate",) if name == "llm_summary" else LADDER
        for rung in dict.fromkeys((name, *ladder)):
            reason = _skip_reason(passage, rung, asked=rung == name)
            if reason:
                tried.append(Attempt(strategy=rung, outcome=reason))
                continue
            try:
                result = load(rung)(passage, budget, self._tools)
            except CompressionError as error:
                tried.append(Attempt(strategy=rung, outcome=error.message))
                continue
            if rung not in (*MAY_EXCEED, "truncate") and not remaining.holds(result.text):
                tried.append(Attempt(strategy=rung, outcome="its result is over budget"))
                continue
            share = result.after / max(1, result.before)
            if best is None or result.after > best.after:
                best = result
            if result.lossless or share >= _floor(passage, budget) or rung == "truncate":
                tried.append(Attempt(strategy=rung, outcome="kept"))
                break
            tried.append(Attempt(strategy=rung, outcome=f"delivers {share:.0%}, below the floor"))
        assert best is not None
        return replace(best, tried=tuple(tried))


def _with_kind(passage: Passage) -> Passage:
    """Detect the kind of a passage. A file with line numbers and no recognised kind is treated as
    code. So is an HTML page read from a file, because the agent may edit its lines.
    """
    if passage.kind != TextKind.TEXT:
        return passage
    kind = detect(plain_start(passage), passage.name)
    is_file = passage.first_line is not None
    if kind == TextKind.HTML and "://" not in passage.name:
        is_file = is_file or passage.name.lower().endswith(_PAGE_FILES)
    is_code = is_file and kind in (TextKind.TEXT, TextKind.HTML)
    return replace(passage, kind=TextKind.CODE if is_code else kind)


def _with_line_numbers(passage: Passage, original: str) -> Passage:
    """Let omission marks give the numbers of the missing lines, so that the agent can ask for them.

    This applies to the kinds in `_NUMBERED`, if cleaning did not change the number of lines.
    """
    is_same = passage.text.count("\n") == original.count("\n")
    if passage.first_line is None and is_same and passage.kind in _NUMBERED:
        return replace(passage, first_line=1)
    return passage


def _with_omissions(result: Compressed, omitted: tuple[Omission, ...]) -> Compressed:
    if not omitted:
        return result
    return replace(result, omitted=(*result.omitted, *omitted), lossless=False)


def _floor(passage: Passage, budget: Budget) -> float:
    return 0.0 if passage.key else budget.floor


def _with_floor(passage: Passage, budget: Budget) -> Budget:
    floor = min(1.0, _floor(passage, budget) * _ROOM_ABOVE_FLOOR)
    if floor <= 0.0:
        return budget
    chars, tokens = budget.max_chars, budget.max_tokens
    if chars is not None:
        chars = max(chars, math.ceil(len(passage.text) * floor))
    if tokens is not None:
        tokens = max(tokens, math.ceil(count(passage.text) * floor))
    return replace(budget, max_chars=chars, max_tokens=tokens)


def _raised(budget: Budget, factor: float) -> Budget:
    chars, tokens = budget.max_chars, budget.max_tokens
    return replace(
        budget,
        max_chars=None if chars is None else math.ceil(chars * factor),
        max_tokens=None if tokens is None else math.ceil(tokens * factor),
    )


def _skip_reason(passage: Passage, rung: str, *, asked: bool) -> str:
    """Return the reason to skip a rung of the ladder, or "".

    A strategy that the caller `asked` for is tried on every kind of text. It is skipped only if the
    agent would need a key to read the rest and there is none.
    """
    if rung in MAY_EXCEED and not passage.key:
        return "no key to read the rest"
    if not asked and passage.kind not in _FALLBACK_KINDS.get(rung, TextKind):
        return f"not suited to {passage.kind}"
    return ""


def _against_input(passage: Passage, result: Compressed) -> Compressed:
    """Compare `result` with the passage as received. Return the passage unchanged if the result has
    neither fewer characters nor fewer tokens."""
    before = len(passage.text)
    if result.after >= before and result.tokens >= count(passage.text):
        return replace(whole(passage), tried=result.tried)
    return replace(result, before=before, lossless=result.lossless and not result.omitted)


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
        mark = opening[1]
        closings = _FENCE.finditer(text, opening.end())
        ends = (at.end() for at in closings if at[1][0] == mark[0] and len(at[1]) >= len(mark))
        end = next(ends, len(text))
        parts += [change(text[offset : opening.start()]), text[opening.start() : end]]
        offset = end
    parts.append(change(text[offset:]))
    return "".join(parts)


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
        retained: list[str] = []
        run = 0
        for frame, next_frame in zip(frames, [*frames[1:], None], strict=True):
            if next_frame is not None and _is_redrawn(frame, next_frame):
                run += 1
                continue
            retained.append(f"{frame} […{run} redrawn]" if run else frame)
            redraws, run = redraws + run, 0
        lines[number] = "\r".join(retained) + line[len(line.rstrip("\r")) :]
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


def _is_redrawn(frame: str, next_frame: str) -> bool:
    if frame == next_frame:
        return True
    if not (_PROGRESS.search(frame) and _PROGRESS.search(next_frame)):
        return False
    return _CHANGING.sub("", frame) == _CHANGING.sub("", next_frame)


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
    if not is_snapshot(text):
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


def clean(passage: Passage) -> tuple[Passage, tuple[Omission, ...]]:
    """Remove the noise that is usual in text of this kind. Returns the omissions to report, too."""
    text, omitted = passage.text, ()  # type: tuple[str, tuple[Omission, ...]]
    for step in STEPS.get(passage.kind, ()):
        text, left_out = step(text)
        omitted = (*omitted, *left_out)
    return (passage if text == passage.text else replace(passage, text=text)), omitted
