from upwell.ground.db import open_database
from upwell.ground.types import Memory
from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.memory.rarity import Rarity
from upwell.memory.schema import OWNER
from upwell.memory.sqlite import SqliteStore


async def test_rare_is_what_few_memories_of_all_databases_hold(tmp_path):
    databases = [
        open_database(tmp_path / f"{name}.db", [OWNER], synchronous="NORMAL") for name in "ab"
    ]
    for number, database in enumerate(databases):
        store = SqliteStore(database)
        await store.add(
            [
                Memory(text=f"settlement of kind {number} {n} runs on herons", project=f"/p{n % 3}")
                for n in range(3)
            ]
        )
    await SqliteStore(databases[0]).add([Memory(text="only the quokka knows")])
    words = ["settlement", "herons", "quokka", "wombat", min(EVERYDAY_WORDS)]
    assert await Rarity(databases).rare(words) == {"quokka", "wombat"}
    assert await Rarity([]).rare(["settlement"]) == {"settlement"}
    for database in databases:
        await database.aclose()
