"""mem0 over pgvector behind a pipe: one request per line in, one answer per line out (JSON). Run by
`peer_postgres.py` as `mem0_worker.py ADDRESS`, with the Python that mem0 is installed in.

    {"do": "add", "memories": [[id, text], …]}    {"do": "search", "texts": […], "clients": 8}
    answers: {"seconds"}; {"ms": […], "cpu": seconds, "found": [[ids], …]}
"""

import hashlib
import json
import math
import os
import re
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"

from mem0 import Memory

LIMIT, DIMENSIONS, BATCH = 10, 384, 1_000
USER = "team"


class Hashed:
    """An embedding of a text's words that costs next to nothing: what is measured is the search."""

    config = None

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        vector = [0.0] * DIMENSIONS
        for word in set(re.findall(r"[\w/.]+", text.lower())):
            number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())
            vector[number % DIMENSIONS] += 1.0 if number >> 63 else -1.0
        length = math.sqrt(sum(value * value for value in vector)) or 1.0
        return [value / length for value in vector]

    def embed_batch(self, texts: list[str], memory_action: str = "add") -> list[list[float]]:
        return [self.embed(text) for text in texts]


def opened(address: str) -> Memory:
    endpoint = {"api_key": "unused", "openai_base_url": "http://127.0.0.1:9"}
    store = {
        "connection_string": address,
        "embedding_model_dims": DIMENSIONS,
        "collection_name": "memories",
        "maxconn": 40,
    }
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "pgvector", "config": store},
            "llm": {"provider": "openai", "config": endpoint},
            "embedder": {"provider": "openai", "config": endpoint},
        }
    )
    memory.embedding_model = Hashed()
    return memory


def add(memory: Memory, memories: list[list[str]]) -> dict[str, Any]:
    """Store texts as `Memory.add(infer=False)` does, but a thousand in one transaction."""
    began = time.perf_counter()
    for start in range(0, len(memories), BATCH):
        some = memories[start : start + BATCH]
        payloads = [
            {
                "data": text,
                "user_id": USER,
                "hash": hashlib.md5(text.encode()).hexdigest(),
                "created_at": "2026-01-01T00:00:00+00:00",
                "text_lemmatized": text,
            }
            for _, text in some
        ]
        ids = [str(uuid.uuid5(uuid.NAMESPACE_URL, name)) for name, _ in some]
        vectors = memory.embedding_model.embed_batch([text for _, text in some])
        memory.vector_store.insert(vectors, payloads, ids)
    return {"seconds": time.perf_counter() - began}


def search(memory: Memory, texts: list[str], clients: int) -> dict[str, Any]:
    def one(text: str) -> tuple[float, list[str]]:
        began = time.perf_counter()
        results = memory.search(text, filters={"user_id": USER}, top_k=LIMIT)["results"]
        return (time.perf_counter() - began) * 1e3, [result["memory"] for result in results]

    for text in texts[: 4 + clients]:
        one(text)
    cpu = time.process_time()
    with ThreadPoolExecutor(clients) as threads:
        answers = list(threads.map(one, texts))
    return {
        "ms": [took for took, _ in answers],
        "cpu": time.process_time() - cpu,
        "found": [found for _, found in answers],
    }


def main() -> None:
    memory = opened(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "add":
            answer = add(memory, request["memories"])
        else:
            answer = search(memory, request["texts"], request["clients"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
