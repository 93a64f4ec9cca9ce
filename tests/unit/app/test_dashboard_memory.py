"""The page of one memory."""

from pathlib import Path

from upwell.app import Settings, build
from upwell.app.dashboard.memory import detail
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory


async def test_a_memory_counts_as_said_before_its_use_is_judged(tmp_path: Path) -> None:
    app = await build(Settings(home=tmp_path, environment={}))
    try:
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
    finally:
        await app.aclose()
