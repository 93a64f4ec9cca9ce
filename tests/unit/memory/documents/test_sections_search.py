"""Searching documentation: the hits, the quoted passages, and their probabilities."""

import random
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Hit, Query, QuerySource, Scope
from upwell.memory.documents import catalog
from upwell.memory.documents.reading import FoundFile
from upwell.memory.documents.sections.rank import is_note
from upwell.memory.documents.sections.rows import rows_from
from upwell.memory.documents.sections.search import SectionSearch
from upwell.memory.documents.sections.terms import terms, vocabulary
from upwell.memory.sources import Source

GUIDE = """# Guide

Intro of the guide.

## Anti-pattern: global clients

Build one client per request:

```py
client = Client()
```

## Resource limits

You can control the pool with `ResourceLimits`.

- `max_connections`, the most connections. Default 100.
- `keepalive_expiry`, seconds an idle connection stays open.

!!! warning

    Do not share a pool between processes.

## Do not

Never do any of these:

- delete the lockfile by hand
- commit the vendored wheels

## Deprecated options

Pass `--legacy-pool` to get the old pool back.
"""


class Shelf:
    """Documentation in an index in memory. `files` are texts by path."""

    def __init__(self, files: Mapping[str, str], project: str = "") -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        for owner in catalog.OWNERS[1:2]:
            for step in owner.migrations:
                step(self.db)
        self.add(files, project)
        self.search = SectionSearch("default")

    def add(self, files: Mapping[str, str], project: str = "") -> None:
        for path, text in files.items():
            source = Source("/docs", "", project or None)
            result = FoundFile(f"/docs/{path}", len(text), 1, source)
            rows = tuple(rows_from(result.path, path, text))
            reading = catalog.FileReading(result, "h", sections=rows, namespace="context")
            no = catalog._note(self.db, reading)
            catalog.rows.insert(self.db, no, project, rows)

    def find(
        self,
        text: str,
        *,
        awaited: bool = True,
        source: QuerySource = QuerySource.MESSAGE,
        paths: tuple[str, ...] = (),
        command: str = "",
        scope: Scope | None = None,
    ) -> list[Hit]:
        query = Query(
            texts=(text,),
            awaited=awaited,
            source=source,
            paths=paths,
            command=command,
            scope=scope or Scope(),
        )
        return self.search.search(self.db, query, Deadline.after(30))

    def first(self, text: str) -> str:
        return self.find(text)[0].memory.text


@pytest.mark.parametrize(
    "question", ["resource limits", "ResourceLimits", "resource_limits", "cap connections"]
)
def test_the_forms_of_a_name_meet(question: str):
    assert Shelf({"a.md": GUIDE}).first(question).startswith("Guide > Resource limits:")


def test_a_flag_is_evidence():
    shelf = Shelf({"a.md": GUIDE})
    assert "Deprecated options" in shelf.first("--legacy-pool")
    hits = shelf.find("x", command="cd /pool/limits && uv --legacy-pool", source=QuerySource.KEYS)
    assert "Deprecated options" in hits[0].memory.text


def test_governed_text_keeps_its_heading_its_lead_in_and_its_callout():
    shelf = Shelf({"a.md": GUIDE})
    assert "Anti-pattern" in shelf.first("one client per request")
    shared = shelf.first("share a pool between processes")
    assert "warning" in shared
    assert "Do not share" in shared
    item = shelf.first("commit the vendored wheels")
    assert "Never do any of these:" in item
    assert item.startswith("Guide > Do not:")


def test_a_passage_is_short_and_made_of_whole_sentences():
    text = "# T\n\n" + "Alpha beta gamma is a sentence. " * 400 + "The zebra eats it. "
    shelf = Shelf({"b.md": text + "Other words follow here. " * 300})
    result = shelf.first("zebra")
    assert "The zebra eats it." in result
    assert len(result) < 700


def test_a_hit_cites_its_lines():
    (hit, *_) = Shelf({"a.md": GUIDE}).find("legacy pool")
    rows = GUIDE.split("\n")
    assert hit.memory.lines is not None
    first, last = hit.memory.lines
    assert "\n".join(rows[first - 1 : last]) in hit.memory.text
    assert hit.memory.source == "a.md"


def test_a_mere_heading_answers_with_the_section_below():
    shelf = Shelf({"a.md": "# Zebra\n\n## Feeding\n\nHay and water.\n"})
    assert "Hay and water." in shelf.first("zebra")


def test_identical_sections_under_two_paths_count_once():
    text = "# Zebras\n\nZebras eat hay.\n"
    hits = Shelf({"a/z.md": text, "b/z.md": text}).find("zebras hay")
    assert len(hits) == 1


def test_links_lend_their_words_to_their_target():
    shelf = Shelf(
        {"a.md": "# A\n\nSee [throttling](b.md#slow-start) first.\n",
         "b.md": "# B\n\nx\n\n## Slow start\n\nThe rate grows.\n"}
    )  # fmt: skip
    assert any("The rate grows." in hit.memory.text for hit in shelf.find("throttling"))


def test_an_automatic_door_gets_at_most_two_passages():
    shelf = Shelf({f"{n}.md": f"# Zebra {n}\n\nThe zebra of {n} eats.\n" for n in range(9)})
    assert len(shelf.find("zebra")) == 9
    assert len(shelf.find("zebra", awaited=False)) <= 2


def test_a_question_that_nothing_answers_is_improbable():
    shelf = Shelf({"a.md": GUIDE})
    right = shelf.find("how do I set resource limits and max_connections of the pool?")[0].score
    wrong = shelf.find("translate the invoice of the customer into French, one page")
    assert right > 0.5
    assert not wrong or wrong[0].score < 0.2


def test_a_section_that_names_the_opened_file_is_probable():
    shelf = Shelf({"a.md": "# A\n\nIn src/db/migrate.py the lock must be taken.\n"})
    for paths, least, most in (
        (("src/db/migrate.py",), 0.6, 1.0),
        (("src/db/migrate.pyx",), 0.0, 0.59),
    ):
        hits = shelf.find("x", source=QuerySource.PATH, paths=paths, awaited=False)
        assert not hits or least <= hits[0].score <= most
        assert hits or not least


def test_a_project_sees_its_own_sections_and_the_global_ones():
    shelf = Shelf({"a.md": "# A\n\nthe zebra of one\n"}, "/one")
    shelf.add({"b.md": "# B\n\nthe zebra of two\n"}, "/two")
    shelf.add({"c.md": "# C\n\nthe zebra of all\n"})

    def sources(scope: Scope) -> set[str]:
        return {hit.memory.source for hit in shelf.find("zebra", scope=scope)}

    assert sources(Scope(project="/one")) == {"a.md", "c.md"}
    assert sources(Scope()) == {"a.md", "b.md", "c.md"}
    assert sources(Scope(namespaces=("decisions",))) == set()


def test_a_removed_file_leaves_no_rows():
    shelf = Shelf({"a.md": GUIDE, "b.md": "# B\n\nSee [limits](a.md#resource-limits).\n"})
    for (no,) in shelf.db.execute("SELECT no FROM file").fetchall():
        catalog.rows.remove(shelf.db, no)
    for table in ("section", "posting", "link"):
        assert shelf.db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_text_in_a_script_without_spaces_is_found():
    shelf = Shelf({"a.md": "# 数据库\n\n连接池的大小是一百。\n", "b.md": "# 其他\n\n没有内容。\n"})
    assert "连接池" in shelf.first("连接池大小")


def test_any_question_to_any_text_is_answered_without_an_error():
    rng = random.Random(2)
    bits = ["# pool\n", "text here. More of it:\n", "- item `a_b`\n", "```\n", "\n", "| a | b |\n",
            "!!! note\n", "    pool\n", "::: danger\n", "=====\n", "[l](x.md#h)\n"]  # fmt: skip
    for _ in range(60):
        text = "".join(rng.choice(bits) for _ in range(rng.randrange(40)))
        shelf = Shelf({"x.md": text, "a.md": GUIDE})
        for question in (text[:300], "pool \ud800", "", "item a_b of the pool"):
            for hit in shelf.find(question):
                assert 0.0 <= hit.score <= 1.0
                assert hit.memory.text


@pytest.mark.parametrize(
    ("path", "expected"),
    [("CONTRIBUTING.md", True), ("docs/contributing.md", True), ("AGENTS.md", True),
     ("crates/x/CLAUDE.md", True), ("docs/style_guide.md", True), ("docs/proxies.md", False)],
)  # fmt: skip
def test_notes_are_recognised_by_their_file_names(path: str, expected: bool):
    assert is_note(path) is expected


def test_terms_of_compounds():
    assert terms("--root-path") == ["root", "path", "rootpath", "--root-path"]
    assert terms("HTTPException")[-1] == "httpexception"
    assert terms("don't use the pool") == ["us", "pool"]


def test_the_shipped_vocabulary_holds_counts_and_synonyms_only():
    known = vocabulary()
    assert len(known.burst) > 3_000
    assert all(1.0 <= value < 40.0 for value in known.burst.values())
    assert known.synonyms["dep"]
    folder = Path(catalog.rows.__file__).parent
    assert _columns(folder.joinpath("background.txt").read_text().splitlines()) == {2}


def _columns(lines: Iterable[str]) -> set[int]:
    return {len(line.split()) for line in lines}


def test_a_passage_matches_every_text_with_a_word_in_it() -> None:
    shelf = Shelf({"guide.md": GUIDE})
    texts = ("how do I control the pool with ResourceLimits?", "control pool", "lantern")
    query = Query(texts=texts, scope=Scope(), source=QuerySource.MESSAGE, awaited=True)
    first, *_ = shelf.search.search(shelf.db, query, Deadline.after(30))
    assert first.matched == texts[:2]
