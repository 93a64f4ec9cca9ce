"""The cost of documents, and how well search finds them.

    python benchmarks/documents.py DATA [--files 10000] [--only cost|recall]

The cost is measured with synthetic files: three sections of 60 words each, with the words of
`store.py`. Recall is measured on the development conversations, written as Markdown with one file
per session and one line per turn. For each question, `cited@k` is the share of its answering turns
that are in the lines cited by the first k hits. `chunk@k` is the share that is in their texts.
"""

import argparse
import asyncio
import itertools
import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from store import Writer, spread
from upwell.ground.clock import Deadline
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Query
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.recall import Documents
from upwell.memory.sources import OWNER, SqliteSources, source_at


async def documents(home: Path, notes: Path) -> Documents:
    database = open_database(home / "memory.db", [OWNER], synchronous="NORMAL")
    sources = SqliteSources(database)
    await sources.add(source_at(notes, notes.parent))
    return Documents(DocumentCatalog(home / "index.db"), sources)


async def cost(count: int, folder: Path) -> None:
    writer, notes = Writer(1), folder / "notes"
    for number in range(count):
        path = notes / f"{number % 100}" / f"note-{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(f"## Part {n}\n\n{writer.text(60)}" for n in range(3)))
    index = await documents(folder, notes)
    began, cpu = time.perf_counter(), time.process_time()
    state = await index.refresh()
    print(
        f"{count} files, {state.chunks} chunks: {time.perf_counter() - began:.1f} s to build "
        f"({time.process_time() - cpu:.1f} s of CPU)"
    )
    await index.refresh()
    times, nothing = [], Query(texts=("zzyzx",))
    for _ in range(30):
        began = time.perf_counter()
        await index.search(nothing, Deadline.after(60))
        times.append(1000 * (time.perf_counter() - began))
    print(f"search for an unknown word, nothing changed: {spread(times)}")
    print(f"of that time, the bare stat of every file: {spread([bare(notes) for _ in range(30)])}")
    times = []
    for number in range(20):
        path = notes / f"{number}" / f"note-{number}.md"
        path.write_text(path.read_text() + "\nAnother line.\n")
        began = time.perf_counter()
        await index.search(Query(texts=(writer.text(8),)), Deadline.after(60))
        times.append(1000 * (time.perf_counter() - began))
    print(f"search after one file changed: {spread(times)}")
    await index.aclose()


def bare(folder: Path) -> float:
    """Milliseconds for one `lstat` of every file and nothing else."""
    began = time.perf_counter()
    for _, folders, files, fd in os.fwalk(folder):
        del folders
        for name in files:
            os.stat(name, dir_fd=fd, follow_symlinks=False)
    return 1000 * (time.perf_counter() - began)


def write_talk(talk: dict[str, Any], folder: Path) -> dict[str, tuple[str, int]]:
    """Write the sessions of a talk as files; return the place of each turn."""
    places: dict[str, tuple[str, int]] = {}
    by_session = itertools.groupby(talk["turns"], key=lambda turn: turn["id"].rsplit(":", 1)[0])
    for name, turns in by_session:
        file = f"{name.replace(':', '-').replace('/', '-')}.md"
        rows = [f"# Session {name}", ""]
        for turn in turns:
            rows.append(f"- {turn['speaker']}: {' '.join(turn['text'].split())}")
            places[turn["id"]] = (f"notes/{file}", len(rows))
        (folder / file).write_text("\n".join(rows) + "\n")
    return places


async def recall(data: Path) -> None:
    cited: dict[str, float] = defaultdict(float)
    count, characters = 0, 0
    for talk in map(json.loads, (data / "conversations_dev.jsonl").read_text().splitlines()):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "notes").mkdir()
            places = write_talk(talk, folder / "notes")
            index = await documents(folder, folder / "notes")
            await index.refresh()
            for question in talk["questions"]:
                gold = {places[turn_id] for turn_id in question["gold"] if turn_id in places}
                if question["category"] == 5 or not gold:
                    continue
                query = Query(texts=(question["question"],), limit=10)
                hits = (await index.search(query, Deadline.after(60))).hits
                count += 1
                characters += sum(len(hit.memory.text) for hit in hits[:5])
                for k in (1, 5, 10):
                    lines = {
                        (hit.memory.source, line)
                        for hit in hits[:k]
                        for line in range(hit.memory.lines[0], hit.memory.lines[1] + 1)
                    }
                    cited[f"cited@{k}"] += len(gold & lines) / len(gold)
                    whole = {
                        place
                        for hit in hits[:k]
                        for place in gold
                        if place[0] == hit.memory.source and holds(hit.memory.text, folder, place)
                    }
                    cited[f"chunk@{k}"] += len(whole) / len(gold)
            await index.aclose()
    parts = "  ".join(f"{name} {value / count:.3f}" for name, value in sorted(cited.items()))
    print(f"{parts}  characters in the first 5: {characters / count:,.0f}")


def holds(text: str, folder: Path, place: tuple[str, int]) -> bool:
    return (folder / place[0]).read_text().split("\n")[place[1] - 1] in text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument(
        "data", type=Path, metavar="DATA", nargs="?", help="the folder with the data sets"
    )
    parser.add_argument("--only", choices=("cost", "recall"))
    options = parser.parse_args()
    if options.only != "cost" and not options.data:
        parser.error("give the folder with the data sets, or --only cost")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if options.only != "recall":
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(cost(options.files, Path(folder)))
    if options.only != "cost":
        asyncio.run(recall(options.data))


if __name__ == "__main__":
    main()
