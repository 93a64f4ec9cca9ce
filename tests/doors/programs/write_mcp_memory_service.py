"""Writes memories with mcp-memory-service's own storage. The argument is the database to write.

Instead of an embedding model, a text's digest determines its vector.
"""

import asyncio
import hashlib
import random
import sys

try:
    import pysqlite3
except ImportError:
    pass  # only Linux has it
else:
    sys.modules["sqlite3"] = pysqlite3

from mcp_memory_service.models.memory import Memory
from mcp_memory_service.storage import sqlite_vec

DIMENSIONS = 384
MEMORIES = [
    ("Deploys need the VPN, otherwise ssh hangs.", ["deploy", "vpn"], "gotcha"),
    ("SQLite was chosen because one file is enough.", ["project:shop"], "decision"),
    ("This one is deleted.", [], "observation"),
]


class Storage(sqlite_vec.SqliteVecMemoryStorage):
    async def _initialize_embedding_model(self) -> None:
        self.embedding_dimension = DIMENSIONS
        self.embedding_model = self

    def _generate_embedding(self, text: str, **_: object) -> list[float]:
        source = random.Random(hashlib.sha256(text.encode()).digest())
        return [source.uniform(-1, 1) for _ in range(DIMENSIONS)]


async def write(path: str) -> None:
    storage = Storage(path)
    await storage.initialize()
    for content, tags, type_ in MEMORIES:
        digest = hashlib.sha256(content.encode()).hexdigest()
        memory = Memory(content=content, content_hash=digest, tags=tags, memory_type=type_)
        stored, message = await storage.store(memory)
        assert stored, message
    deleted, message = await storage.delete(digest)
    assert deleted, message


asyncio.run(write(sys.argv[1]))
