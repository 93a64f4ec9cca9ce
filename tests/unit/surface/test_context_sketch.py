"""The sketch of a session's context: what the agent has already seen counts as known."""

import pytest

from upwell.ground.types.cue import Cue, Door, ToolAnswer
from upwell.ground.types.memory import Memory
from upwell.surface.seen_log import (
    MAX_FILES,
    MAX_PENDING_CHARS,
    MAX_SESSIONS,
    MAX_TERMS,
    ContextSketch,
    ContextSketches,
    exact_names,
)

TEXT = "The idempotency key belongs to the charge, since a retry of order 1187 sent a new one"


def read(path: str, text: str, session: str = "s") -> Cue:
    answer = ToolAnswer(text=text)
    return Cue(door=Door.TOOL, tool="Read", args={"path": path}, session=session, answer=answer)


def test_words_of_an_answer_are_known() -> None:
    sketch = ContextSketch()
    assert sketch.new_share(TEXT) == 1.0
    sketch.add(read("/r/a.md", TEXT))
    assert sketch.new_share(TEXT) == 0.0
    assert sketch.holds(Memory(text=TEXT))


def test_a_memory_with_something_new_is_not_known() -> None:
    sketch = ContextSketch()
    sketch.add(Cue(door=Door.PROMPT, text="why did the retry of order 1187 fail?", session="s"))
    assert not sketch.holds(Memory(text=TEXT))


def test_a_passage_of_a_file_that_was_opened_is_known() -> None:
    sketch = ContextSketch()
    sketch.add(read("/r/docs/pay.md", "the first page only"))
    assert sketch.holds(Memory(text=TEXT, source="docs/pay.md", lines=(900, 910)))
    assert not sketch.holds(Memory(text=TEXT, source="docs/other.md", lines=(1, 2)))


def test_files_that_hosts_load_by_themselves_are_known() -> None:
    sketch = ContextSketch()
    for source in ("CLAUDE.md", "AGENTS.md", "GEMINI.md", "packages/api/CLAUDE.md"):
        assert sketch.holds(Memory(text=TEXT, source=source, lines=(1, 3))), source
    assert not sketch.holds(Memory(text=TEXT, source="docs/CLAUDE-guide.md", lines=(1, 3)))


def test_sessions_are_apart_and_bounded() -> None:
    sketches = ContextSketches()
    sketches.note(read("/r/a.md", TEXT, "one"))
    assert sketches.of("two").new_share(TEXT) == 1.0
    assert sketches.of("one").new_share(TEXT) == 0.0
    for number in range(MAX_SESSIONS):
        sketches.of(f"other {number}")
    assert sketches.of("one").new_share(TEXT) == 1.0


def test_a_lost_context_is_forgotten() -> None:
    sketches = ContextSketches()
    sketches.note(read("/r/a.md", TEXT))
    sketches.compacted("s")
    assert sketches.of("s").new_share(TEXT) == 1.0
    sketches.note(read("/r/a.md", TEXT))
    sketches.note(Cue(door=Door.SESSION, text="clear", session="s"))
    assert sketches.of("s").new_share(TEXT) == 1.0


def test_a_compacted_session_goes_on_and_a_cleared_one_begins_anew() -> None:
    sketches = ContextSketches()
    for reason, prompts in (("compact", 1), ("clear", 0)):
        sketches.note(Cue(door=Door.PROMPT, text="why is it slow?", session=reason))
        sketches.note(Cue(door=Door.SESSION, text=reason, session=reason))
        assert sketches.of(reason).prompts == prompts


def test_a_long_session_costs_bounded_memory() -> None:
    sketch = ContextSketch()
    for page in range(200):
        sketch.add(read("/r/a.md", " ".join(f"word{page}x{n}" for n in range(1_000))))
    assert len(sketch.terms()) < MAX_TERMS + 5_000


def test_texts_wait_unread_within_a_bound() -> None:
    sketch = ContextSketch()
    text = "charge " * 1_000
    for page in range(3 * MAX_PENDING_CHARS // len(text)):
        sketch.add(read("/r/a.md", f"{text} page{page}"))
        assert sum(map(len, sketch._terms._pending)) <= MAX_PENDING_CHARS
    assert sketch.new_share("charge page0 page1") == 0.0
    assert not sketch._terms._pending


PROSE = "The idempotency key’s owner is the charge; parseConfig(Año) read 文字列 in src/pay.py"


@pytest.mark.parametrize("context", [PROSE, PROSE.upper(), "a key, charged", "", PROSE * 3])
@pytest.mark.parametrize(
    "text", [PROSE, "keys of the charge", "parse config of 文字", "CHARGE", "."]
)
def test_the_quick_share_of_new_terms_is_never_above_the_exact_one(context: str, text: str) -> None:
    sketch = ContextSketch()
    sketch.add(read("/r/a.md", context))
    quick = sketch.least_new_share(text)
    assert sketch._terms._pending, "the quick share splits no text"
    assert quick <= sketch.new_share(text) == sketch.least_new_share(text)


def test_only_the_latest_opened_files_are_remembered() -> None:
    sketch = ContextSketch()
    first, second = (Memory(text=TEXT, source=f"docs/{n}.md", lines=(1, 2)) for n in (0, 1))
    for number in range(MAX_FILES):
        sketch.add(read(f"/r/docs/{number}.md", ""))
    sketch.add(read("/r/docs/0.md", ""))
    assert sketch.holds(first)
    assert sketch.holds(second)
    sketch.add(read("/r/docs/new.md", ""))
    assert len(sketch.files) == MAX_FILES
    assert sketch.holds(first), "opened again later"
    assert not sketch.holds(second)


def test_an_exact_thing_that_is_new_is_news() -> None:
    sketch = ContextSketch()
    question = "Which port does the tide service listen on?"
    sketch.add(Cue(door=Door.PROMPT, text=question, session="s"))
    assert not sketch.holds(Memory(text="The tide service listens on port 7431"))
    sketch.add(read("/r/tide.toml", "port = 7431"))
    assert sketch.holds(Memory(text="The tide service listens on port 7431"))


def test_names_that_are_exact() -> None:
    text = (
        "Run `make test-slow` in src/pay.py: idempotencyKey, max_retries, v1.2 (all else is talk)."
    )
    assert exact_names(text) == {"src/pay.py", "idempotencyKey", "max_retries", "v1.2"}


def test_a_bare_slash_command_is_no_prompt() -> None:
    sketch = ContextSketch()
    for text in ("/clear", "/review the pump", "/home/ana/pump.py", "Why?"):
        sketch.add(Cue(door="prompt", text=text, session="s"))
    assert sketch.prompts == 3
