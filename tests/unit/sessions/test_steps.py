"""A past session step by step, for each agent that records its sessions."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.unit.replay import samples

from upwell.replay.transcripts import transcripts_at
from upwell.sessions import answer
from upwell.sessions.answer import SessionPart, parts_of
from upwell.sessions.index import SessionIndex, SessionScope

KEY = "AKIA" + "QX7ZL4TB2MWVN3RD"


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[SessionIndex]:
    (tmp_path / "sessions").mkdir()
    opened = SessionIndex(tmp_path / "index.db", lambda: transcripts_at([tmp_path / "sessions"]))
    yield opened
    await opened.aclose()


async def parts(
    index: SessionIndex, name: str = samples.SESSION, first: int = 0
) -> list[SessionPart]:
    await index.refresh()
    return parts_of((await index.recorded(name))[first:])


@pytest.mark.parametrize(
    "write",
    [samples.claude, samples.codex, samples.gemini, samples.gemini_lines, samples.copilot],
)
async def test_every_agent_has_a_timeline(
    index: SessionIndex, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    write(tmp_path / "sessions")
    await index.refresh()
    (listed, *_) = await index.listed(SessionScope(), None, 5)
    read = await parts(index, listed.session.name)
    assert len(read) == listed.session.turns
    assert read[0].prompt
    assert not any(part.is_excerpt for part in read)
    assert [part.number for part in read] == sorted(part.number for part in read)
    assert any(step.tool for part in read for step in part.steps)
    later = await parts(index, listed.session.name, first=1)
    assert later == read[1:]


async def test_secrets_are_masked_and_long_texts_are_cut(
    index: SessionIndex, tmp_path: Path
) -> None:
    records = [
        {"type": "summary", "summary": "Pumps", "sessionId": samples.SESSION},
        samples.claude_record("user", "10:00:00", f"Use {KEY} for the pump " + "tide " * 9_000),
        samples.claude_call("10:00:01", "Bash", command=f"pump --key {KEY} " + "x " * 9_000),
        samples.claude_result("10:00:02", f"error: {KEY} was refused by the pump", is_error=True),
        samples.claude_record(
            "assistant", "10:00:03", [{"type": "text", "text": f"{KEY} " + "tide " * 9_000}]
        ),
    ]
    samples.lines(tmp_path / "sessions" / f"{samples.SESSION}.jsonl", records)
    (part,) = await parts(index)
    texts = [part.prompt, *(text for step in part.steps for text in (step.text, step.trouble))]
    assert len(part.prompt) == answer.PROMPT_CHARS
    assert part.steps[0].trouble.startswith("error: ")
    assert not [text for text in texts if KEY in text]
    assert max(map(len, texts)) <= answer.PROMPT_CHARS


async def test_a_turn_with_many_steps_is_cut(
    index: SessionIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "MAX_STEPS", 2)
    samples.claude(tmp_path / "sessions")
    first = (await parts(index))[0]
    assert len(first.steps) == 2
    assert first.left_out >= 1


async def test_a_transcript_that_is_gone_leaves_its_excerpts(
    index: SessionIndex, tmp_path: Path
) -> None:
    path = samples.claude(tmp_path / "sessions")
    await index.refresh()
    matches = await index.recorded(samples.SESSION)
    path.unlink()
    first = parts_of(matches)[0]
    assert first.is_excerpt
    assert first.prompt == "Why does the pump stall?"
