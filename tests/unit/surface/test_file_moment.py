"""At a call on one file only memories about that file may surface. The query names the file, and a
store without such a memory need not search. The decision must be the same as with a search."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.ledger import TtlStore
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.cue import Cue, Door, Surfacing, ToolAnswer
from upwell.ground.types.memory import Found, Memory, Query
from upwell.memory.base import CombinedReader, Recalls, StoreRecall
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer

MEMORIES = [
    Memory(text="Charges are keyed by order, not by customer", paths=("src/pay.py",), project="/r"),
    Memory(text="The pay module must not import the web layer", project="/r"),
    Memory(text="Never edit main by hand, it is generated", paths=("main.py",), project="/r"),
    Memory(text="Retries of the pay client back off", paths=("lib/pay.py",), project="/r"),
    Memory(text="Config keys are documented in README", paths=("README.md", "src/conf.py")),
    Memory(
        text="Handlers are registered in src/index.ts", paths=("/r/src/index.ts",), project="/r"
    ),
]
FILES = [
    "/r/src/pay.py",
    "/r/src/main.py",
    "src/pay.py",
    "/r/lib/PAY.py",
    "/r/src/conf.py",
    "/r/src/index.ts",
    "/r/index.ts",
    "/r/src/unknown.py",
    "/elsewhere/README.md",
]


class Searching(CombinedReader):
    """Searches as if the query named no file."""

    async def search(self, query: Query, deadline: Deadline) -> Found:
        return await super().search(replace(query, file=""), deadline)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("tool", ["Read", "Bash"])
async def test_the_decision_is_that_of_a_search(file: str, tool: str, tmp_path: Path) -> None:
    args = {"file_path": file} if tool == "Read" else {"command": f"cat {file}"}
    cue = Cue(
        door=Door.TOOL, tool=tool, args=args, session="s", cwd="/r", answer=ToolAnswer(text="code")
    )
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="NORMAL")
    store = SqliteStore(database)
    await store.add([replace(m, id=f"m{number}") for number, m in enumerate(MEMORIES)])
    surfaced_ids = []
    for reader in (CombinedReader, Searching):
        options = PipelineOptions(surface=SurfaceOptions(min_score=0.05))
        surfacer = Surfacer(reader(store, Recalls([StoreRecall(store)])), TtlStore(), options)
        outcome = await surfacer.surface(cue)
        surfaced_ids.append(
            [hit.memory.id for hit in outcome.hits] if isinstance(outcome, Surfacing) else []
        )
        await surfacer.aclose()
    await database.aclose()
    assert surfaced_ids[0] == surfaced_ids[1]
    if file == "/r/src/pay.py":
        assert surfaced_ids[0] == ["m0"]
