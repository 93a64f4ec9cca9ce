"""Copies of sessions are recognised by their prompts and events, whatever their names and times."""

from pathlib import Path

import pytest

from upwell.episodes.events import Kind, SessionEvent, line_of
from upwell.replay.timeline import MIN_EVENTS, Fingerprint, Timeline, copied_sessions
from upwell.replay.transcripts import transcripts_at

WORDS = ["I look at the intake.", "It is iced over.", "I thaw it.", "The pump runs.", "Done."]
QUESTION = "Why does the pump stall?"


def session(name: str, begins: float, prompt: str, words: list[str]) -> list[SessionEvent]:
    asked = SessionEvent(session=name, i=0, t=begins, kind=Kind.PROMPT, text=prompt)
    spoken = [
        SessionEvent(session=name, i=position, t=begins + position, kind=Kind.SAY, text=text)
        for position, text in enumerate(words, start=1)
    ]
    return [asked, *spoken]


def fingerprint(begins: float, prompt: str, words: list[str]) -> Fingerprint:
    made = Fingerprint(begins)
    for event in session("s", begins, prompt, words):
        made.add(event)
    return made


def replaced(number: int) -> list[str]:
    """The words with the last `number` of them replaced."""
    return WORDS[: len(WORDS) - number] + [f"Other {entry}" for entry in range(number)]


@pytest.mark.parametrize(
    ("prompt", "words", "is_copy"),
    [
        (QUESTION, WORDS, True),
        (QUESTION, replaced(2), True),
        (QUESTION, replaced(3), False),
        ("Why does the crane stall?", WORDS, False),
        (QUESTION, WORDS[: MIN_EVENTS - 2], False),
    ],
)
def test_a_copy_has_the_same_prompts_and_most_events(
    prompt: str, words: list[str], is_copy: bool
) -> None:
    first, second = fingerprint(0.0, QUESTION, WORDS), fingerprint(1_000.0, prompt, words)
    assert copied_sessions({"b": second, "a": first}) == ({"b"} if is_copy else set())


def test_sessions_with_other_prompts_are_not_copies() -> None:
    first, second = (fingerprint(at, QUESTION, WORDS) for at in (0.0, 1.0))
    first.add(SessionEvent(session="s", i=9, t=9.0, kind=Kind.PROMPT, text="And the crane?"))
    second.add(SessionEvent(session="s", i=9, t=9.0, kind=Kind.PROMPT, text="And the gate?"))
    assert copied_sessions({"a": first, "b": second}) == set()


def test_a_timeline_skips_copies_and_counts_them(tmp_path: Path) -> None:
    for name, begins in (("original", 100.0), ("copy", 9_000.0)):
        events = session(name, begins, QUESTION, WORDS)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(line_of, events)) + "\n")
    reports: list[str] = []
    timeline = Timeline(transcripts_at([tmp_path]), reports.append)
    assert (timeline.sessions, timeline.copies, timeline.events) == (1, 1, len(WORDS) + 1)
    assert {event.session for event in timeline} == {"original"}
    assert not reports
