"""Every agent plays the drill once: its transcript, what its hooks delivered, and its recording."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.live.conftest import FILE, PROMPT, RULE, Stage
from tests.live.drill import (
    CORRECTION,
    FORKED,
    expected,
    prompt,
    seen,
    sessions_at,
)
from tests.live.model import Heard, Model
from tests.live.parts import FAILURE, PARTS, furnish
from tests.live.recording import record

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Played:
    """A part after its last turn."""

    name: str
    stage: Stage
    heard: list[Heard]


@pytest.fixture(scope="module", params=sorted(PARTS))
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    part = PARTS[request.param]
    stage = Stage(tmp_path_factory.mktemp("drill"))
    furnish(stage)
    stage.house.start()
    try:
        with Model(part.script(str(stage.house.project))) as model:
            part.play(stage, model)
        yield Played(request.param, stage, model.heard)
    finally:
        stage.house.stop()


def test_the_transcript_tells_what_happened(played: Played) -> None:
    folder = played.stage.folder / PARTS[played.name].transcripts.partition("*")[0]
    sessions, tally = sessions_at(folder if folder.is_dir() else folder.parent)
    steps = expected(played.name, str(played.stage.house.project))
    session, *forks = sorted(sessions.values(), key=len)
    assert seen(session, steps) == steps
    for fork in forks:
        assert played.name == "claude", "only the fork is a session of its own"
        both = [*steps, prompt(FORKED), steps[-1]]
        assert seen(fork, both) == both
    assert tally.unknown == {}


def test_the_hooks_delivered_each_memory_once(played: Played) -> None:
    turn = [heard for heard in played.heard if CORRECTION not in heard.text]
    asked = next(heard for heard in turn if PROMPT in heard.text)
    assert [asked.text.count(words) for words in (RULE, PROMPT, FAILURE)] == [1, 1, 0]
    assert played.heard[-1].text.count(RULE) == 1, "resumed or forked, with the rule in its context"
    after = max(turn, key=lambda heard: len(heard.of("call")))
    counts = [after.text.count(words) for words in (RULE, PROMPT, FILE, FAILURE)]
    assert counts == [1, 1, 1, 1]


@pytest.mark.skipif(not os.environ.get("UPWELL_RECORD"), reason="`make live-fixtures` records")
def test_the_transcript_is_recorded(played: Played) -> None:
    """Transcripts of sub-agents as well, because a reader has to tell them from sessions."""
    folder = played.stage.folder
    record(played.name, folder, sorted(folder.glob(PARTS[played.name].transcripts)))
