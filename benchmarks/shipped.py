"""A retrieval set that the repository ships: seventy memories of a made-up ferry company's project,
and 135 questions about it. Written for this repository; under its licence.

`data/harbour.jsonl` has a line for each memory (the import shape, its id under `memory`) and one
for each question: its text, its `kind`, the ids of the memories that answer it (`gold`, empty if no
memory does) and, for the kind `path`, the file being worked on. Questions of the kind `meaning`
share hardly a word with their answers, so a search by words alone does not find these.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types.memory import Query, Scope

FILE = Path(__file__).parent / "data" / "harbour.jsonl"
KINDS = ("exact", "paraphrased", "path", "identifier", "spanish", "meaning", "none")


@dataclass(frozen=True, slots=True)
class Question:
    """A question while working on `path`, and the ids of the memories that answer it."""

    text: str
    kind: str
    gold: frozenset[str]
    path: str = ""

    def query(self, limit: int = 10, project: str | None = None) -> Query:
        """The query of a search: words, files and names."""
        paths = (self.path,) if self.path else paths_in(self.text)
        return Query(
            texts=(self.text,),
            paths=paths,
            symbols=symbols_in(self.text),
            scope=Scope(project=project),
            limit=limit,
        )


def load() -> tuple[list[dict[str, Any]], list[Question]]:
    """The memories, as `Library.add_many` takes them, and the questions."""
    memories, questions = [], []
    for row in map(json.loads, FILE.read_text(encoding="utf-8").splitlines()):
        if "memory" in row:
            memories.append({"id": row.pop("memory"), **row})
        else:
            gold = frozenset(row["gold"])
            questions.append(Question(row["question"], row["kind"], gold, row.get("path", "")))
    return memories, questions
