"""What a decision waits for, with a database on which every answer takes a while."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.postgres import cluster
from upwell.app import Settings, build
from upwell.app import store as home_store
from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.cue import Cue, Surfacing
from upwell.ground.types.memory import Memory
from upwell.memory.postgres import counts
from upwell.testing import FakeEmbedder

DELAY = 0.5
TEXT = "which retry limit does the queue of invoices have when the broker is down?"


@pytest.mark.slow
@pytest.mark.parametrize("embedder", [None, FakeEmbedder()], ids=["words", "meaning"])
async def test_a_decision_waits_for_two_round_trips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: FakeEmbedder | None
) -> None:
    monkeypatch.setattr(home_store, "embedder_of", lambda options: embedder)
    # Round trips are slow in this test, so the version of the memories counts as current longer.
    monkeypatch.setattr(counts, "RECENT_SECONDS", 10 * DELAY)
    flags = {"store.url": cluster().database()}
    settings = Settings(home=tmp_path, flags=flags, environment={}, watches=False)
    app = await build(settings)
    texts = [f"the retry limit of the queue of invoices number {n} is {n}" for n in range(3)]
    await app.memory.add_many([Memory(text=text, namespace="decisions") for text in texts])
    await app.embeddings.catch_up()
    await app.surfacer.surface(
        Cue(door="prompt", text="why does the deployment of the frontend fail?", session="first")
    )
    await asyncio.sleep(1.0)  # the work after the first decision ends
    ask = Postgres.ask

    async def slow(self, *args, **more):
        await asyncio.sleep(DELAY)
        return await ask(self, *args, **more)

    monkeypatch.setattr(Postgres, "ask", slow)
    began = time.monotonic()
    outcome = await app.surfacer.offer(Cue(door="prompt", text=TEXT, session="second"))
    waited = time.monotonic() - began
    assert isinstance(outcome, Surfacing)
    assert waited < 3 * DELAY
    again = await app.surfacer.offer(Cue(door="prompt", text=f"{TEXT} again", session="second"))
    given = {memory.id for memory in outcome.memories}
    assert not isinstance(again, Surfacing) or not given & {m.id for m in again.memories}
    monkeypatch.undo()
    await app.aclose()
