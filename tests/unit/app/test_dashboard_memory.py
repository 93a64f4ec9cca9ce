"""The search of the Memory page, and the page of one memory."""

from upwell.app import App
from upwell.app.dashboard.memory import detail, memories
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory
from upwell.surface.rules import RuleScope


async def test_a_memory_counts_as_said_before_its_use_is_judged(app: App) -> None:
    said = Memory(text="The price service rounds prices half to even before it adds tax.")
    silent = Memory(text="The crane of quay four is painted every spring.")
    for memory in (said, silent):
        await app.memory.add(memory)
    ids = {item.text: item.id for item in await app.memory.list(limit=5)}
    await app.surfacer.surface(
        Cue(
            door="prompt",
            text="How does the price service round prices before tax?",
            session="s",
        )
    )
    assert await app.learning.sightings() == []
    assert (await detail(app, {"id": ids[said.text]}))["said"] == 1
    assert (await detail(app, {"id": ids[silent.text]}))["said"] == 0


async def test_a_search_finds_standing_rules_by_their_words_and_their_scope(app: App) -> None:
    scope = RuleScope(paths=("quay/**",)).triggers()
    for rule in (
        Memory(text="Write British English for customers.", pinned=True, project="/srv/shop"),
        Memory(text="Never paint over rust.", pinned=True, triggers=scope, tags=("paused",)),
    ):
        await app.memory.add(rule)
    await app.memory.add(Memory(text="The customers of the shop speak English."))

    async def found(**fields: str) -> list[tuple[str, list[str]]]:
        rows = (await memories(app, fields))["rows"]
        return [(row["text"], row["marks"]) for row in rows]

    british = ("Write British English for customers.", ["standing rule"])
    ordinary: tuple[str, list[str]] = ("The customers of the shop speak English.", [])
    assert await found(q="customer English") == [british, ordinary]
    assert await found(q="customer English", kind="rule") == [british]
    assert await found(q="customer English", project="/srv/harbour") == []
    rust = ("Never paint over rust.", ["standing rule", "paused"])
    assert await found(q="quay") == [rust]
    assert await found(q="the kettle whistles in English") == [ordinary]
