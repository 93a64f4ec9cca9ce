"""How it is said: one line a memory, cited, cut at what matches, inside a frame it cannot leave.

Surfaced text is data. The frame says so in one neutral sentence, and whatever could pass for the
frame, move the cursor or turn the text around is made harmless (DESIGN 4.12).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from upwell.ground.names import memory_uri
from upwell.ground.text.tokens import count
from upwell.ground.text.words import informative, terms
from upwell.ground.types import Door, Hit, Intent, Memory, Trust
from upwell.memory.quote import quoted
from upwell.surface.frame import REMINDER, TAG, harmless, harmless_line
from upwell.surface.options import Options

EMPTY_DIGEST = "(No relevant prior context for this message.)"
DIGEST_HEADING = "## Relevant prior context"
MAX_READ_CHARS = 20_000
AGENT_LABEL = "(written by an agent) "
ASK_PREVIEW_CHARS = 220
LEAST_PREVIEW_CHARS = 20
"""A shorter stretch of a memory says nothing."""
_CITATION_UNSAFE = re.compile(r"[\[\]\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How much one door may say. All limits apply; the smallest wins."""

    chars: int
    tokens: int
    items: int
    preview_chars: int


def profile_of(door: Door | str, intent: Intent, options: Options) -> Profile:
    """The limits of a door (DESIGN 4.3). At prompts, intent decides how much may be said."""
    surface, context = options.surface, options.memory_context
    if door == Door.ASK:
        return Profile(
            chars=surface.max_injection_chars * 2,
            tokens=surface.max_tokens,
            items=max(1, context.max_results),
            preview_chars=ASK_PREVIEW_CHARS,
        )
    if door == Door.TOOL:
        return Profile(
            chars=surface.max_injection_chars,
            tokens=surface.max_tokens,
            items=min(surface.tool_count, surface.max_count),
            preview_chars=max(80, surface.max_injection_chars // max(1, surface.tool_count) - 120),
        )
    allowed = 5 if intent.confidence < 0.5 else 10 if intent.confidence < 0.8 else surface.max_count
    return Profile(
        chars=surface.max_tokens * 4,
        tokens=surface.max_tokens,
        items=min(allowed, surface.max_count),
        preview_chars=max(LEAST_PREVIEW_CHARS, surface.preview_chars),
    )


def citation(memory: Memory) -> str:
    """`path#L3-L5`, `stm:id` or `upwell://memory/id`."""
    source = _CITATION_UNSAFE.sub(" ", harmless(memory.source)).strip()
    if memory.lines:
        first, last = memory.lines
        return f"{source}#L{first}-L{last}"
    if source.startswith("stm:"):
        return source
    return memory_uri(memory.id)


def preview(text: str, query_texts: Sequence[str], limit: int) -> str:
    """One line of at most `limit` characters: the whole text, or the stretch that matches."""
    line = harmless_line(text[:MAX_READ_CHARS])
    if len(line) <= limit:
        return line
    start = _best_start(line, query_texts, limit - 2)
    if start == 0:
        return line[: limit - 1].rstrip() + "…"
    return "…" + line[start : start + limit - 2].strip() + "…"


def _best_start(line: str, query_texts: Sequence[str], width: int) -> int:
    """Where a window of `width` holds most of the query's words; the beginning on ties."""
    wanted = set(informative(term for text in query_texts for term in terms(text)))
    places = [match.start() for match in re.finditer(r"\w+", line)]
    spoken = [(at, _stemmed(line[at : at + 40], wanted)) for at in places]
    marks = [(at, term) for at, term in spoken if term]
    best, best_count = 0, len({term for at, term in marks if at < width})
    inside: Counter[str] = Counter()
    left = right = 0
    for at, _ in marks:
        start = max(0, at - width // 4)
        while right < len(marks) and marks[right][0] < start + width:
            inside[marks[right][1]] += 1
            right += 1
        while marks[left][0] < start:
            inside[marks[left][1]] -= 1
            left += 1
        different = sum(1 for count in inside.values() if count > 0)
        if different > best_count:
            best, best_count = start, different
    return best if best < len(line) - width else max(0, len(line) - width)


def _stemmed(ahead: str, wanted: set[str]) -> str:
    word = next(iter(terms(ahead[:40])), "")
    return next((term for term in wanted if word[:5] == term[:5]), "")


def digest(hits: Sequence[Hit], query_texts: Sequence[str], profile: Profile) -> str:
    """The digest of seed 003, byte for byte: a heading and one `- [citation] text` a memory."""
    if not hits:
        return EMPTY_DIGEST
    return "\n".join([DIGEST_HEADING, *_lines(hits, query_texts, profile)])


def block(
    hits: Sequence[Hit], query_texts: Sequence[str], profile: Profile, surfacing_id: str
) -> str:
    """The fenced block of automatic doors. It carries the surfacing's id for feedback."""
    lines = _lines(hits, query_texts, profile)
    return "\n".join([f'<{TAG} id="{surfacing_id}">', REMINDER, *lines, f"</{TAG}>"])


def beneath(lines: Sequence[str], surfacing_id: str, text: str = "") -> str:
    """More lines at the end of the block `text`; a block of their own where there is none."""
    end = f"</{TAG}>"
    begun = text.removesuffix(end) or f'<{TAG} id="{surfacing_id}">\n{REMINDER}\n'
    return "\n".join([begun.rstrip("\n"), *lines, end])


def lines_of(text: str) -> list[str]:
    """The lines of a block, without its frame."""
    return [line for line in text.split("\n")[1:-1] if line != REMINDER]


def _lines(hits: Sequence[Hit], query_texts: Sequence[str], profile: Profile) -> list[str]:
    return [entry(hit, query_texts, profile) for hit in hits]


def entry(hit: Hit, query_texts: Sequence[str], profile: Profile) -> str:
    """One memory as one line: cited, cut at what matches."""
    memory = hit.memory
    said = quoted(memory.text, hit.matched) if memory.lines else memory.text
    shown = preview(said, query_texts, profile.preview_chars)
    cited = citation(memory)
    cut = shown.endswith("…") or shown.startswith("…")
    link = f" {memory_uri(memory.id)}" if cut and not cited.startswith("upwell://") else ""
    label = AGENT_LABEL if memory.trust is Trust.AGENT else ""
    return f"- [{cited}] {label}{shown}{link}"


def fitting(
    hits: Sequence[Hit], query_texts: Sequence[str], profile: Profile, frame_chars: int
) -> list[Hit]:
    """As many of the best `hits` as the profile lets pass, frame and citations counted."""
    chars, tokens, kept = frame_chars, 0, list[Hit]()
    for hit in hits[: profile.items]:
        line = entry(hit, query_texts, profile)
        chars += len(line) + 1
        tokens += count(line) + 1
        if chars > profile.chars or tokens > profile.tokens:
            break
        kept.append(hit)
    return kept


FRAME_CHARS = len(f'<{TAG} id="s_0123456789ab">\n{REMINDER}\n</{TAG}>')
