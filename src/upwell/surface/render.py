"""Writes the text that an agent gets: one line per memory, inside a frame of two tags or, in a
digest, below a heading. Each line has the memory's citation and an excerpt around the match.

The text of a memory is data, and the frame says so in one neutral sentence. Text that could imitate
the frame, move the cursor or reverse the reading direction is escaped or replaced by spaces.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.names import LTM_ID, STM_ID, memory_uri, named_uri
from upwell.ground.text.safe import visible
from upwell.ground.text.tokens import count
from upwell.ground.text.words import informative, iso, terms
from upwell.ground.types.cue import Door, Intent
from upwell.ground.types.memory import LESSON, STATE, Hit, Memory, Trust
from upwell.memory.documents.quote import quoted
from upwell.memory.documents.sections.search import GOVERNING, PASSAGE
from upwell.surface.options import InjectionMode, PipelineOptions

CHARS_PER_ITEM = 1000
"""A tool's result gets one memory for each of so many characters that it may get."""
SURE = 0.8
"""An intent with at least this confidence counts as sure (seed 004, ADR-006)."""
PASSAGE_CHARS = 700
"""The `Profile.passage_chars` for prompts and tool calls."""
TAG = "upwell-memories"
ENTRY_MARK = "- ["
"""The beginning of each line that shows a memory."""
NOTICE = "Notes from earlier work, for reference"
REMINDER = f"{NOTICE}; `upwell__memory_get` gives the full text of one."
_OWN_TAG = re.compile(
    r"<(?=\s{0,20}/?\s{0,20}(?:[a-z]{1,40}[-_][a-z]|upwell\s|\||"
    r"(?:system|user|assistant|human|instructions?|important|invoke|parameter|result|fnr)\b))",
    re.IGNORECASE,
)
"""The beginning of a tag that must be broken, because it marks a turn or an instruction, or
because its two-part name could imitate that of our frame, `upwell-memories`."""
_IMAGE = re.compile(r"!(?=\[[^\]\n]{0,200}\]\()")
"""A Markdown image, which a client would load from its URL."""
_TURN = re.compile(r"\[(?=/?INST\])")
_SPACE = re.compile(r"\s+")
_WIDE = str.maketrans({char: f"\\u{ord(char):04x}" for char in "＜＞﹤﹥"})


def harmless(text: str) -> str:
    """`text` made safe to show. Invisible characters become spaces or visible escapes. A backslash
    breaks images, turn markers and tags like those of our frame (`<\\/upwell-memories>`)."""
    shown = _OWN_TAG.sub(r"<\\", visible(text).translate(_WIDE))
    return _TURN.sub(r"[\\", _IMAGE.sub(r"!\\", shown))


def harmless_line(text: str) -> str:
    """`text` as one line, made harmless."""
    return harmless(_SPACE.sub(" ", text)).strip()


EMPTY_DIGEST = "(No relevant prior context for this message.)"
DIGEST_HEADING = "## Relevant prior context"
MAX_READ_CHARS = 20_000
WHOLE = frozenset({LESSON, STATE})
"""The doors (`Provenance.door`) of memories that are shown whole."""
AGENT_LABEL = "(written by an agent) "
ASK_PREVIEW_CHARS = 220
MIN_PREVIEW_CHARS = 20
"""The shortest excerpt that is still worth showing."""
_ALIKE_CHARS = 5
"""Words match if this many of their first characters are equal."""
_WORDS = re.compile(r"\w+")
_CITATION_UNSAFE = re.compile(r"[\[\]\s]+")


class Profile(Struct, frozen=True, kw_only=True):
    """How much text one door (the prompt hook, a tool call, a request …) may show at once. The
    first limit reached applies."""

    chars: int
    tokens: int
    items: int
    preview_chars: int
    passage_chars: int = 0
    """A passage of documentation is shown whole up to this length, including the headings above it.
    """

    def without(self, text: str) -> "Profile":
        """The limits that remain after `text` and one line break."""
        return replace(self, chars=self.chars - len(text) - 1, tokens=self.tokens - count(text) - 1)

    def holds(self, line: str) -> bool:
        """True if this line fits."""
        return len(line) <= self.chars and count(line) <= self.tokens


def profile_of(door: Door | str, intent: Intent, options: PipelineOptions) -> Profile:
    """The limits for a door. At a prompt, the number of memories grows with the confidence of the
    intent, up to `surface.max_count` at `SURE` (ADR-006)."""
    surface, context = options.surface, options.memory_context
    if door == Door.ASK:
        return Profile(
            chars=surface.max_injection_chars * 2,
            tokens=surface.max_tokens,
            items=max(1, context.max_results),
            preview_chars=ASK_PREVIEW_CHARS,
        )
    if door == Door.TOOL:
        items = min(math.ceil(surface.max_injection_chars / CHARS_PER_ITEM), surface.max_count)
        return Profile(
            chars=surface.max_injection_chars,
            tokens=surface.max_tokens,
            items=items,
            preview_chars=max(80, surface.max_injection_chars // max(1, items) - 120),
            passage_chars=PASSAGE_CHARS,
        )
    if intent.confidence < options.intent.min_confidence:
        allowed = 5
    else:
        allowed = 10 if intent.confidence < SURE else surface.max_count
    return Profile(
        chars=surface.max_tokens * 4,
        tokens=surface.max_tokens,
        items=min(allowed, surface.max_count),
        preview_chars=max(MIN_PREVIEW_CHARS, surface.preview_chars),
        passage_chars=PASSAGE_CHARS,
    )


def citation(memory: Memory) -> str:
    """`path#L3-L5`, `stm:id` or `upwell://memory/id`."""
    source = _CITATION_UNSAFE.sub(" ", harmless(memory.source)).strip()
    if memory.lines:
        first, last = memory.lines
        return f"{source}#L{first}-L{last}"
    if source.startswith(STM_ID):
        return source
    if source.startswith(LTM_ID):
        return named_uri(memory.id, source.removeprefix(LTM_ID))
    return memory_uri(memory.id)


def preview(text: str, query_texts: Sequence[str], limit: int) -> str:
    """One line of at most `limit` characters: the whole text, or the part that matches best."""
    line = harmless_line(text[:MAX_READ_CHARS])
    if len(line) <= limit:
        return line
    start = _best_start(line, query_texts, limit - 2)
    if start == 0:
        return line[: limit - 1].rstrip() + "…"
    return "…" + line[start : start + limit - 2].strip() + "…"


def _best_start(line: str, query_texts: Sequence[str], width: int) -> int:
    """The start of the `width`-character window with the most distinct query words; in a tie, the
    first.
    """
    query_terms = informative(term for text in query_texts for term in terms(text))
    by_beginning = {term[:_ALIKE_CHARS]: term for term in sorted(query_terms, reverse=True)}
    beginnings = (
        (match.start(), _first_term(match.group()[:40])[:_ALIKE_CHARS])
        for match in _WORDS.finditer(line)
    )
    marks = [
        (position, by_beginning[beginning])
        for position, beginning in beginnings
        if beginning in by_beginning
    ]
    best, best_count = 0, len({term for position, term in marks if position < width})
    window_words: Counter[str] = Counter()
    left = right = 0
    for position, _ in marks:
        start = max(0, position - width // 4)
        while right < len(marks) and marks[right][0] < start + width:
            window_words[marks[right][1]] += 1
            right += 1
        while marks[left][0] < start:
            window_words[marks[left][1]] -= 1
            left += 1
        different = sum(1 for count in window_words.values() if count > 0)
        if different > best_count:
            best, best_count = start, different
    return best if best < len(line) - width else max(0, len(line) - width)


@lru_cache(maxsize=8192)
def _first_term(word: str) -> str:
    return next(iter(terms(word)), "")


def digest(lines: Sequence[str]) -> str:
    """A heading, and one line for each memory."""
    return "\n".join([DIGEST_HEADING, *lines]) if lines else EMPTY_DIGEST


def without_heading(hit: Hit) -> Hit:
    """The hit without the headings that upwell put above its passage, because a digest shows
    exactly the lines that it cites. Headings that reverse the meaning (`Do not:`) are kept."""
    heading, newline, text = hit.memory.text.partition("\n")
    if PASSAGE not in hit.signals or not newline or not heading.endswith(":"):
        return hit
    if GOVERNING.search(heading):
        return hit
    return replace(hit, memory=replace(hit.memory, text=text))


def by_command(text: str, command: str) -> str:
    """The block `text` for an agent that may lack our tools. Its reminder names `command`, a shell
    command that prints the full text of a memory."""
    return text.replace(REMINDER, reminder_of(command), 1)


def reminder_of(command: str) -> str:
    """The reminder for an agent that may lack our tools."""
    return f"{NOTICE}; `{command}` gives the full text of one."


def beneath(lines: Sequence[str], surfacing_id: str, text: str = "") -> str:
    """The block `text` with `lines` added at its end. Without `text`, a new block with the id by
    which the agent can rate it."""
    end = f"</{TAG}>"
    opened = text.removesuffix(end) or f'<{TAG} id="{surfacing_id}">\n{REMINDER}\n'
    return "\n".join([opened.rstrip("\n"), *lines, end])


def lines_of(text: str) -> list[str]:
    """The lines of a block, without its frame."""
    return [line for line in text.split("\n")[1:-1] if not line.startswith(NOTICE)]


def entry(hit: Hit, query_texts: Sequence[str], profile: Profile) -> str:
    """One memory as one line: its citation, and an excerpt of its text around the match."""
    memory = hit.memory
    if memory.provenance.door in WHOLE:
        shown = harmless_line(memory.text[:MAX_READ_CHARS])
    elif PASSAGE in hit.signals or hit.trigger:
        shown = preview(memory.text, query_texts, max(profile.preview_chars, profile.passage_chars))
    else:
        text = quoted(memory.text, hit.matched) if memory.lines else memory.text
        shown = preview(text, query_texts, profile.preview_chars)
    cited = citation(memory)
    is_cut = shown.endswith("…") or shown.startswith("…")
    link = f" {memory_uri(memory.id)}" if is_cut and not cited.startswith("upwell://") else ""
    return f"- [{cited}] {_label(memory)}{shown}{link}"


def _label(memory: Memory) -> str:
    """Who wrote a memory, if an agent did, and for a lesson or a state, from when it is."""
    day = (iso(memory.created_at) or "")[:10]
    if memory.provenance.door not in WHOLE or not day:
        return AGENT_LABEL if memory.trust is Trust.AGENT else ""
    return f"(written by an agent on {day}) " if memory.trust is Trust.AGENT else f"({day}) "


def fitting(
    hits: Sequence[Hit], query_texts: Sequence[str], profile: Profile, frame: str
) -> list[str]:
    """The lines of the best `hits` that fit the profile together with `frame`. The last line may be
    shortened to fit. If too little of a memory would be shown, it and all later memories are
    omitted."""
    lines, room = list[str](), profile.without(frame)
    full_chars = max(profile.preview_chars, profile.passage_chars)
    for hit in hits[: profile.items]:
        least = full_chars // 2 if lines else MIN_PREVIEW_CHARS
        line = _line_within(room, hit, query_texts, least)
        if not line:
            break
        lines.append(line)
        room = room.without(line)
    return lines


def _line_within(room: Profile, hit: Hit, query_texts: Sequence[str], least: int) -> str:
    """The line for `hit`, shortened until it fits `room`; "" if fewer than `least` characters of
    the memory would be shown. A lesson or a state is not shortened: half a rule misleads.
    """
    if hit.memory.provenance.door in WHOLE:
        line = entry(hit, query_texts, room)
        return line if room.holds(line) else ""
    preview_chars = max(room.preview_chars, room.passage_chars)
    while True:
        line = entry(hit, query_texts, room)
        if room.holds(line):
            return line
        # Start from the line's length if it is below the limit. The line also has a citation, so
        # one round may not be enough.
        shown_chars = min(preview_chars, len(line))
        excess = max(1, len(line) - room.chars)
        by_tokens = shown_chars * max(0, room.tokens) // max(1, count(line))
        preview_chars = min(shown_chars - excess, max(by_tokens, least))
        if preview_chars < least:
            return ""
        room = replace(room, preview_chars=preview_chars, passage_chars=0)


SECTION_HEADING = "## Relevant memories\n\n"


def place[Block](blocks: Sequence[Block], memories: Block, mode: InjectionMode) -> list[Block]:
    """`blocks` with the block of memories before or after them."""
    if mode is InjectionMode.PREPEND:
        return [memories, *blocks]
    return [*blocks, memories]


def worded(text: str, mode: InjectionMode) -> str:
    """The block of memories, with a heading in `section` mode."""
    return SECTION_HEADING + text if mode is InjectionMode.SECTION else text


def marked(text: str, mark: str) -> str:
    """The block `text` with this process's secret mark. MCP servers do not know the mark, so they
    cannot forge a block."""
    return text.replace(f"<{TAG} ", f'<{TAG} mark="{mark}" ', 1)


def frame_of(door: Door | str, command: str = "") -> str:
    """The longest text that can surround the memories at a door. `command`, if given, is a shell
    command that prints the full text of a memory."""
    if door == Door.ASK:
        return f"{DIGEST_HEADING}\n"
    empty = beneath([], "s_0123456789ab")
    frame = max(empty, by_command(empty, command), key=len)
    return worded(marked(frame, "01234567"), InjectionMode.SECTION) if door == Door.TOOL else frame
