"""Namespaces and their patterns, in every `Store`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.stores import STORES

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.ground.types.rpc import is_visible
from upwell.memory.base import Store, StoreRecall
from upwell.testing import ManualClock


@pytest.fixture(params=sorted(STORES))
async def store(request, tmp_path: Path) -> AsyncIterator[Store]:
    opened, close = STORES[request.param](tmp_path, ManualClock())
    yield opened
    await close()


PARTS = st.sampled_from(["me", "team", "te_m", "t%", "me_", "a", "*", "[a-z]", "\\", "'"])
NAMESPACES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(names=st.lists(NAMESPACES, min_size=1, max_size=6, unique=True), data=st.data())
async def test_a_search_sees_the_namespaces_of_its_patterns(store: Store, names, data) -> None:
    patterns = data.draw(
        st.lists(
            st.one_of(st.sampled_from(["*", *names]), NAMESPACES, NAMESPACES.map("{}/*".format)),
            min_size=1,
            max_size=3,
        )
    )
    scope = Scope(project="/patterns", namespaces=tuple(patterns))
    for memory in await store.list(Scope(project="/patterns"), limit=100):
        await store.purge(memory.id)
    await store.add(
        [
            Memory(text=f"the kettle is red {n}", namespace=name, project="/patterns")
            for n, name in enumerate(names)
        ]
    )
    visible = {name for name in names if is_visible(name, patterns)}
    query = Query(texts=("red kettle",), scope=scope, limit=50)
    hits = (await StoreRecall(store).search(query, Deadline.after(30))).hits
    assert {hit.memory.namespace for hit in hits} == visible
    assert {memory.namespace for memory in await store.list(scope)} == visible
