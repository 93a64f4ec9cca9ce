"""A query for one namespace or project sees only that one, whatever its name."""

import asyncio
import tempfile
import unicodedata
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from upwell.ground.clock import Deadline
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.memory.base import StoreRecall
from upwell.memory.sqlite.store import OWNER, SqliteStore

TRICKY = [
    *("team", "Team", "team ", " team", "team%", "te_m", "t%", "%", "_", "?", "[a-z]", "tea"),
    *("../team", "team/..", "./team", "team/", "/", "\\", "team\\", "'", "''", '"', "team'--"),
    *("caf\u00e9", "cafe\u0301", "CAF\u00c9", "\ufb01le", "file", "\uff54eam", "tеam", "İ", "i̇"),
    *("team\u200b", "team\n", "team\0", "team\0b", "null", "NULL", "0", "00", "0.0", "ß", "ss"),
]
NAMES = st.lists(
    st.one_of(
        st.sampled_from(TRICKY),
        # A name that ends with an asterisk is a pattern.
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
            lambda name: not name.endswith("*")
        ),
    ),
    min_size=2,
    max_size=8,
    unique=True,
)


async def seen(store: SqliteStore, **scope: object) -> set[str]:
    query = Query(texts=("kettle",), scope=Scope(**scope), limit=50)
    return {
        hit.memory.text for hit in (await StoreRecall(store).search(query, Deadline.after(30))).hits
    }


async def check(names: list[str], folder: Path) -> None:
    database = open_database(folder / "m.db", [OWNER], synchronous="NORMAL")
    store = SqliteStore(database)
    try:
        spaces = [
            Memory(text=f"the kettle number {n} of a namespace", namespace=name)
            for n, name in enumerate(names)
        ]
        projects = [
            Memory(text=f"the kettle number {n} of a project", namespace="p", project=f"/w/{name}")
            for n, name in enumerate(names)
        ]
        await store.add([*spaces, *projects])
        for n, name in enumerate(names):
            assert await seen(store, namespaces=(name,)) >= {spaces[n].text}
            others = await seen(store, namespaces=(name,)) - {spaces[n].text}
            assert others <= ({project.text for project in projects} if name == "p" else set())
            assert await seen(store, namespaces=("p",), project=f"/w/{name}") >= {projects[n].text}
            foreign = {project.text for project in projects} - {projects[n].text}
            assert not await seen(store, project=f"/w/{name}") & foreign
    finally:
        await database.aclose()


@settings(max_examples=8, deadline=None)
@given(NAMES)
def test_a_namespace_sees_itself_only(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(names, Path(folder)))


def test_the_examples_include_names_that_look_alike() -> None:
    """Among the examples are names that are equal after folding or normalising."""
    folded = {unicodedata.normalize("NFKC", name).casefold() for name in TRICKY}
    assert len(folded) < len(TRICKY)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(TRICKY, Path(folder)))
