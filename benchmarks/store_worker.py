"""One memory store behind one pipe: one request per line in, one answer per line out (JSON). Run by
`store.py` as `store_worker.py NAME FOLDER`, with the interpreter that the store is installed in.
Imports only that store and the standard library.

    {"do": "add", "texts": [...]}    {"do": "search", "text": "..."}    {"do": "state"}
    answers: {"cpu", "wall"} in seconds; {"found"}; {"rss", "disk"} in MB; or {"error"}
"""

import asyncio
import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

LIMIT = 10
Add = Callable[[list[str]], Awaitable[None]]
Search = Callable[[str], Awaitable[int]]
Close = Callable[[], Awaitable[None]]


async def upwell(folder: Path) -> tuple[Add, Search, Close]:
    from upwell.ground.clock import Deadline
    from upwell.ground.sqlite.database import open_database
    from upwell.ground.types.memory import Memory, Query
    from upwell.memory.base import StoreRecall
    from upwell.memory.sqlite.store import OWNER, SqliteStore

    database = open_database(folder / "memory.db", [OWNER], synchronous="FULL")
    store = SqliteStore(database)

    async def add(texts: list[str]) -> None:
        await store.add([Memory(text=text) for text in texts])

    async def search(text: str) -> int:
        return len(
            (
                await StoreRecall(store).search(
                    Query(texts=(text,), limit=LIMIT), Deadline.after(600)
                )
            ).hits
        )

    return add, search, database.aclose


async def memtomem(folder: Path) -> tuple[Add, Search, Close]:
    """memtomem with its defaults and no embedder (words only). It is filled directly through its
    storage, bypassing its files and chunker, which is faster than its public interface allows; it
    is searched through its pipeline.
    """
    from memtomem.config import Mem2MemConfig
    from memtomem.models import Chunk, ChunkMetadata
    from memtomem.runtime.components import close_components, create_components

    config = Mem2MemConfig()
    config.storage.sqlite_path = folder / "memtomem.db"
    components = await create_components(config, load_ambient_config=False)

    async def add(texts: list[str]) -> None:
        at = ChunkMetadata(source_file=folder / "notes.md")
        await components.storage.upsert_chunks([Chunk(content=text, metadata=at) for text in texts])

    async def search(text: str) -> int:
        hits, _ = await components.search_pipeline.search(text, top_k=LIMIT)
        return len(hits)

    async def close() -> None:
        await close_components(components)

    return add, search, close


async def memory_service(folder: Path) -> tuple[Add, Search, Close]:
    """mcp-memory-service with its sqlite-vec storage, and with the hashed vectors that it falls
    back to if no model can be downloaded. Its hits therefore mean little; its cost is measured
    without the time of a model.
    """
    os.environ["MCP_MEMORY_ALLOW_HASH_EMBEDDINGS"] = "1"
    from mcp_memory_service.models.memory import Memory
    from mcp_memory_service.storage.sqlite_vec import SqliteVecMemoryStorage
    from mcp_memory_service.utils.hashing import generate_content_hash

    storage = SqliteVecMemoryStorage(str(folder / "service.db"))
    await storage.initialize()

    async def add(texts: list[str]) -> None:
        memories = [
            Memory(content=text, content_hash=generate_content_hash(text)) for text in texts
        ]
        if len(memories) == 1:
            done = [await storage.store(memories[0], skip_semantic_dedup=True)]
        else:
            done = await storage.store_batch(memories)
        refused = [why for stored, why in done if not stored and "uplicate" not in why]
        if refused:
            raise RuntimeError(refused[0])

    async def search(text: str) -> int:
        return len(await storage.retrieve(text, n_results=LIMIT))

    async def close() -> None:
        await storage.close()

    return add, search, close


ADAPTERS = {"upwell": upwell, "memtomem": memtomem, "mcp-memory-service": memory_service}


def lend_extensions() -> bool:
    """Replace sqlite3 by pysqlite3-binary if this Python cannot load SQLite extensions."""
    import sqlite3

    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        with contextlib.suppress(ImportError):
            import pysqlite3

            sys.modules["sqlite3"] = pysqlite3
            sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
            return True
    return False


def disk(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


async def answer(request: dict[str, Any], folder: Path, add: Add, search: Search) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    reply: dict[str, Any] = {}
    if request["do"] == "add":
        await add(request["texts"])
    elif request["do"] == "search":
        reply["found"] = await search(request["text"])
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        reply |= {"rss": peak, "disk": disk(folder), "since_start": time.process_time()}
    return reply | {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


async def serve(name: str, folder: Path, pipe: Any) -> None:
    add, search, close = await ADAPTERS[name](folder)
    for line in sys.stdin:
        try:
            reply = await answer(json.loads(line), folder, add, search)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        pipe.write(json.dumps(reply) + "\n")
        pipe.flush()
    await close()


def main() -> None:
    pipe, sys.stdout = sys.stdout, sys.stderr
    if sys.argv[1] != "upwell":
        lend_extensions()
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), pipe))


if __name__ == "__main__":
    main()
