"""Lessons and states in the pipeline: when they are said, and how."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.scripted_model import ScriptedModel, naming, serving

from upwell.ground.ledger import TtlStore
from upwell.ground.llm import Endpoint, OpenAIChat
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing, ToolAnswer
from upwell.ground.types.memory import LESSON, STATE, Hit, Memory, Provenance, Trust
from upwell.ground.types.rpc import Principal
from upwell.surface.options import JudgeOptions, PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Outcome, Surfacer
from upwell.testing import FakeRecall, ManualClock

ROOT = "/work/quay"
DAY = 86_400.0
START = 1_750_000_000.0


def lesson(identity: str, text: str, *tags: str, **more: Any) -> Memory:
    fields: dict[str, Any] = {
        "created_at": START - 3 * DAY,
        "updated_at": START - 3 * DAY,
        "content_hash": f"h-{len(text)}",
        "provenance": Provenance(door=LESSON, tool=more.pop("kind", "decision"), session="s0"),
        **more,
    }
    return Memory(
        id=identity,
        namespace="lessons",
        text=text,
        tags=tags,
        project=ROOT,
        trust=Trust.AGENT,
        **fields,
    )


LONG = (
    "Berth fees are rounded up to whole quarters of an hour, never down, because the council's "
    "audit of March found boats that stayed for free. A boat that leaves within four minutes pays "
    "nothing. Rejected: rounding to the nearest quarter, and a minimum fee of half an hour."
)
FEES = lesson("fees", LONG, "berth_fee", "quarter rounding", "berth fee")
FIX = lesson(
    "fix",
    "Stop the berth server before `quayctl migrate`, else relation berths is locked.",
    *("quayctl migrate", "relation berths is locked"),
    kind="error_fix",
)
OTHERS = [
    lesson(f"o{number}", f"The {word} page is sorted by {word}.", word)
    for number, word in enumerate(("lantern", "buoy", "ferry", "crane", "pier"))
]
ASKED = Cue(door="prompt", text="how is the berth fee computed?", session="s", cwd=ROOT)
FAILED = Cue(
    door="tool",
    tool="Bash",
    args={"command": "quayctl migrate"},
    answer=ToolAnswer(text="error: relation berths is locked", failed=True),
    session="s",
    cwd=ROOT,
)
ROUTINE = Cue(
    door="tool",
    tool="Bash",
    args={"command": "git status"},
    answer=ToolAnswer(text="clean", failed=False),
    session="s",
    cwd=ROOT,
)


class Stage:
    """A surfacer over these lessons, and over these hits of every search."""

    def __init__(
        self, *lessons: Memory, hits: Sequence[Hit] = (), model: ScriptedModel | None = None
    ) -> None:
        self.recall = FakeRecall(hits, memories=[*lessons, *OTHERS])
        self.clock = ManualClock(START)
        chat = OpenAIChat(Endpoint(base_url=model.address, model="m")) if model else None
        surface = SurfaceOptions(cooldown_seconds=0.0, judge=model is not None)
        options = PipelineOptions(surface=surface, judge=JudgeOptions(calls=40))
        store = TtlStore(clock=self.clock)
        self.surfacer = Surfacer(self.recall, store, options, chat=chat, clock=self.clock)

    async def says(self, cue: Cue) -> list[str]:
        return ids(await self.surfacer.surface(cue))


def ids(outcome: Outcome) -> list[str]:
    return [memory.id for memory in outcome.memories] if isinstance(outcome, Surfacing) else []


async def test_a_lesson_is_said_whole_and_with_its_day() -> None:
    outcome = await Stage(FEES).surfacer.surface(ASKED)
    assert isinstance(outcome, Surfacing)
    assert f"(written by an agent on 2025-06-12) {LONG}" in outcome.text


async def test_a_lesson_that_does_not_fit_is_left_out_rather_than_cut() -> None:
    stage = Stage(FEES)
    options = PipelineOptions(surface=SurfaceOptions(max_tokens=60))
    surfacer = Surfacer(stage.recall, TtlStore(), options, clock=stage.clock)
    outcome = await surfacer.surface(ASKED)
    assert isinstance(outcome, Skip)
    assert outcome.reason is SkipReason.OVER_BUDGET


async def test_a_session_hears_a_lesson_once_until_its_context_is_compacted() -> None:
    stage = Stage(FEES)
    assert await stage.says(ASKED) == ["fees"]
    assert await stage.says(replace(ASKED, text="what was the berth fee rounding again?")) == []
    assert await stage.says(replace(ASKED, session="another")) == ["fees"]
    await stage.surfacer.compacting("s")
    compacted = await stage.surfacer.surface(replace(ASKED, door=Door.SESSION, text="compact"))
    assert isinstance(compacted, Surfacing)
    assert LONG in compacted.text
    assert await stage.says(ASKED) == []


async def test_a_replaced_lesson_is_never_said() -> None:
    newer = replace(FEES, id="newer", text="Berth fees are free now.", supersedes="fees")
    assert await Stage(FEES, newer).says(ASKED) == ["newer"]


async def test_of_two_lessons_that_say_the_same_the_newer_is_said() -> None:
    newer = replace(FEES, id="newer", text=LONG + " Since May.", updated_at=START - DAY)
    assert await Stage(FEES, newer).says(ASKED) == ["newer"]


async def test_at_most_two_lessons_are_said() -> None:
    parts = [
        lesson(f"part{number}", f"{text} applies to it.", f"{word} rule", "berth_fee")
        for number, (text, word) in enumerate(
            (("The first rule", "mast"), ("A second norm", "keel"), ("Some third clause", "hull"))
        )
    ]
    cue = replace(ASKED, text="do the mast rule, the keel rule and the hull rule apply?")
    assert len(await Stage(*parts).says(cue)) == 2


async def test_the_rest_of_a_rule_comes_with_it() -> None:
    rest = lesson("rest", "Harbour patrols are exempt from it.", "berth_fee", "patrol")
    stranger = replace(rest, id="stranger", provenance=Provenance(door=LESSON, session="s9"))
    cue = replace(ASKED, text="quarter rounding of berth_fee is wrong for boats")
    assert await Stage(FEES, rest).says(cue) == ["fees", "rest"]
    assert await Stage(FEES, stranger).says(cue) == ["fees"]


async def test_a_later_request_may_bring_up_a_lesson() -> None:
    kill = lesson("kill", "Run `quayctl down --wait`.", "drain the moorings", kind="command")
    stage = Stage(kill)
    assert await stage.says(replace(ASKED, text="paint the lighthouse page white again")) == []
    outcome = await stage.surfacer.surface(replace(ASKED, text="now drain the moorings"))
    assert ids(outcome) == ["kill"]
    assert outcome.moment == "lesson"


async def test_a_failure_brings_up_its_remedy() -> None:
    assert await Stage(FIX).says(FAILED) == ["fix"]


@pytest.mark.parametrize(
    "answer",
    [
        ToolAnswer(text="The user doesn't want relation berths is locked", failed=True),
        ToolAnswer(text="error: relation berths is locked", failed=False),
        ToolAnswer(text="error: no such column", failed=True),
    ],
    ids=["refused", "succeeded", "another error"],
)
async def test_other_results_do_not(answer: ToolAnswer) -> None:
    assert await Stage(FIX).says(replace(FAILED, answer=answer)) == []


async def test_an_error_that_a_successful_call_printed_too_is_noise() -> None:
    stage = Stage(FIX)
    noisy = ToolAnswer(text="ok\nrelation berths is locked", failed=False)
    assert await stage.says(replace(ROUTINE, answer=noisy)) == []
    assert await stage.says(FAILED) == []


async def test_a_lesson_stays_in_its_project_and_with_its_owner() -> None:
    stage = Stage(FEES)
    assert await stage.says(replace(ASKED, cwd=None)) == []
    stranger = Principal(name="ada", namespaces=("public",))
    assert await stage.says(replace(ASKED, principal=stranger)) == []


async def test_a_lesson_that_was_just_deleted_is_not_said() -> None:
    stage = Stage(FEES)
    await stage.says(replace(ASKED, text="paint the lighthouse page white again"))
    stage.recall.memories, stage.recall.version = [], 1
    stage.clock.advance(1)
    assert await stage.says(ASKED) == []


async def test_a_lesson_is_found_soon_after_it_was_written() -> None:
    stage = Stage()
    stage.recall.memories = []
    assert await stage.says(ASKED) == []
    stage.recall.memories, stage.recall.version = [FEES, *OTHERS], 1
    stage.clock.advance(61)
    assert await stage.says(replace(ASKED, session="later")) == ["fees"]


async def test_lessons_are_no_diary_at_the_start_of_a_session() -> None:
    stage = Stage(FEES)
    options = PipelineOptions(surface=SurfaceOptions(moments="all"))
    surfacer = Surfacer(stage.recall, TtlStore(), options, clock=stage.clock)
    start = replace(ASKED, door=Door.SESSION, text="startup")
    assert ids(await surfacer.surface(start)) == []


def state(text: str, **more: Any) -> Hit:
    memory = lesson("state:s7", text, "#412", **more)
    return Hit(memory=replace(memory, provenance=Provenance(door=STATE, session="s7")), score=0.9)


async def test_a_state_is_said_whole_at_a_prompt_and_nowhere_else() -> None:
    text = "The tide feed was moved to publish.yml (#412). " + "Its tests are still red. " * 9
    left = state(text.strip())
    outcome = await Stage(hits=[left]).surfacer.surface(ASKED)
    assert isinstance(outcome, Surfacing)
    assert text.strip() in outcome.text
    assert await Stage(hits=[replace(left, score=0.3)]).says(ASKED) == []
    assert await Stage(hits=[left]).says(FAILED) == []


async def test_a_lesson_that_the_user_made_a_rule_is_left_to_the_rules() -> None:
    assert await Stage(replace(FEES, pinned=True, trust=Trust.USER)).says(ASKED) == []


async def test_a_search_says_no_lesson_that_does_not_bear_on_the_cue() -> None:
    hit = Hit(memory=FEES, score=0.95)
    assert await Stage(hits=[hit]).says(replace(ASKED, text="where do the ferries sail?")) == []
    asked = await Stage(hits=[hit]).surfacer.surface(replace(ASKED, door=Door.ASK))
    assert ids(asked) == ["fees"], "but an explicit request finds it"


async def test_likeness_in_meaning_counts_where_there_are_vectors() -> None:
    alike = Hit(memory=FEES, score=0.6, signals={"meaning": 6.5})
    cue = replace(ASKED, text="Wie berechnen wir die Liegegebühr?")
    assert await Stage(hits=[alike]).says(cue) == ["fees"]
    vague = replace(alike, signals={"meaning": 2.5})
    assert await Stage(hits=[vague]).says(cue) == []


async def test_without_lessons_nothing_is_searched_that_was_not() -> None:
    stage = Stage()
    stage.recall.memories = []
    assert await stage.says(replace(ASKED, text="paint the lighthouse page white")) == []
    searches = len(stage.recall.asked)
    outcome = await stage.surfacer.surface(replace(ASKED, text="and the doors green now"))
    assert isinstance(outcome, Skip)
    assert outcome.reason is SkipReason.ROUTINE
    assert len(stage.recall.asked) == searches


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with serving(ScriptedModel()) as scripted:
        yield scripted


async def test_the_judge_hears_the_age_of_a_lesson_and_what_it_replaced(
    model: ScriptedModel,
) -> None:
    model.part = naming("free")
    newer = replace(FEES, id="newer", text="Berth fees are free now.", supersedes="fees")
    newer = replace(newer, created_at=START - 5 * 3_600)
    assert await Stage(FEES, newer, model=model).says(ASKED) == ["newer"]
    (note,) = model.documents[0]["notes"]
    assert (note["kind"], note["age"]) == ("lesson", "5 hours ago")
    assert note["replaces"] == LONG[:200]


async def test_the_judge_may_choose_a_lesson_that_alone_would_stay_unsaid(
    model: ScriptedModel,
) -> None:
    cue = replace(ASKED, text="list the boats whose quarter is over and their berth")
    assert await Stage(FEES).says(cue) == []
    model.part = naming("quarters")
    assert await Stage(FEES, model=model).says(cue) == ["fees"]


async def test_a_slow_verdict_on_a_lesson_comes_with_the_next_event(model: ScriptedModel) -> None:
    model.part, model.seconds = naming("Stop"), 0.2
    stage = Stage(FIX, model=model)
    assert await stage.says(FAILED) == []
    assert stage.surfacer._judge is not None
    async with asyncio.timeout(10):
        await stage.surfacer._judge._tasks.drain()
    assert await stage.says(ROUTINE) == ["fix"]
    assert await stage.says(ROUTINE) == []


async def test_the_rest_of_a_rule_comes_with_the_part_that_the_judge_chose(
    model: ScriptedModel,
) -> None:
    model.part = naming("quarters")
    rest = lesson("rest", "Harbour patrols are exempt from it.", "berth_fee", "patrol")
    cue = replace(ASKED, text="quarter rounding of berth_fee is wrong for boats")
    assert await Stage(FEES, rest, model=model).says(cue) == ["fees", "rest"]
    model.part = naming("exempt")
    assert "rest" in await Stage(FEES, rest, model=model).says(cue)
