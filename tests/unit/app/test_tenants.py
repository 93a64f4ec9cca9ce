"""Two homes with different `store.tenant` share a database and see nothing of each other."""

import json
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from tests.postgres import cluster

from upwell.app import App, Settings, build
from upwell.app.dashboard.desk import VIEWS
from upwell.ground.clock import Deadline
from upwell.ground.postgres import connection
from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.types.cue import Cue, Feedback, Rating, Surfacing
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.ground.types.rpc import OWNER, Principal, granted
from upwell.memory.base import StoreRecall

TOPIC = "the settlement job of the ledger runs before midnight"


def word(number: int) -> str:
    return f"kestrel{number:03}xyz"


async def filled(app: App, principal: Principal, secret: str) -> dict[str, str]:
    """Leave `secret` in every place of an app, and return the ids under which it is found."""
    text = f"{TOPIC}, and {secret} says so in src/settle.py"
    added = await app.memory.add({"text": text, "tags": [secret], "paths": ["src/settle.py"]})
    note = f"a note on the settlement: {secret}"
    await app.toolbox(principal).call("add_memory", {"content": note}, "s")
    original = await app.compress(f"line of {secret}\n" * 3_000, max_tokens=100, name=secret)
    cue = Cue(door="prompt", text="when does the settlement job run?", session="s")
    outcome = await app.surfacer.surface(cue)
    assert isinstance(outcome, Surfacing)
    await app.surfacer.ratings.rate(Feedback(surfacing_id=outcome.id, rating=Rating.NOT_RELEVANT))
    assert original.key
    return {"memory": added.id, "key": original.key, "surfacing": outcome.id}


async def everything_seen(app: App, principal: Principal, ids: dict[str, str]) -> str:
    """All that a principal can be shown."""
    box = app.toolbox(principal)
    calls = [
        ("memory_search", {"query": "settlement job ledger midnight kestrel", "max_results": 50}),
        ("memory_context", {"message": "when does the settlement job run before midnight?"}),
        ("memory_get", {"id": ids["memory"]}),
        ("read_more", {"key": ids["key"]}),
        ("search_original", {"key": ids["key"], "query": "line"}),
        ("search_memory", {"query": "settlement"}),
        ("feedback", {"surfacing_id": ids["surfacing"], "rating": "helpful"}),
        ("delete_memory", {"id": ids["memory"]}),
    ]
    shown = [(await box.call(name, args, "s")).result.decode() for name, args in calls]
    resources = app.resources(principal)
    for uri in ("upwell://topics", "upwell://search/settlement%20midnight"):
        shown.append(json.dumps(list(await resources.read(uri))))
    await app.topics.refresh()
    shown.append(repr(await app.topics.all()))
    shown.append(repr(await app.decisions()))
    shown.append(repr(await app.learning.learned.thresholds()))
    for view in ("now", "rows", "sessions", "memory", "savings", "inbox", "trash"):
        shown.append(repr(await VIEWS[view](app, {})))
    shown.append(repr(await VIEWS["memories"](app, {"q": "settlement job midnight"})))
    shown.append(repr(await app.memory.list(limit=1_000)) + repr(await app.memory.store.trash()))
    return "\n".join(shown)


async def test_the_wall_stands_without_the_checks_of_the_application(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every condition on the tenant is removed from every statement: the database alone keeps the
    tenants apart."""
    url, removed = cluster().emptied(), 0
    apps = [
        await build(
            Settings(
                home=tmp_path / name,
                flags={"store.url": url, "store.tenant": name},
                environment={},
            )
        )
        for name in ("one", "two")
    ]
    ids = [await filled(app, granted("ada"), word(number)) for number, app in enumerate(apps)]
    send = connection.send

    async def unchecked(to: AsyncConnection, tenant: int, statement: Statement) -> object:
        nonlocal removed
        sql = statement.sql
        for prefix in ("t.", "m.", "w.", "p.", "a.", "b.", "memory.", ""):
            sql = sql.replace(f"{prefix}tenant = %(tenant)s", "true")
        removed += sql != statement.sql
        return await send(to, tenant, Statement(sql, statement.values))

    monkeypatch.setattr(connection, "send", unchecked)
    try:
        for number, app in enumerate(apps):
            shown = await everything_seen(app, OWNER, ids[1 - number])
            assert word(1 - number) not in shown
            query = Query(texts=("settlement midnight",), scope=Scope(tenant="two"))
            found = await StoreRecall(app.memory.store).search(query, Deadline.after(30))
            assert all(word(number) in hit.memory.text for hit in found.hits)
        assert removed > 20
    finally:
        monkeypatch.undo()
        for app in apps:
            await app.aclose()


async def test_a_store_of_a_tenant_cannot_be_asked_for_another(tmp_path: Path) -> None:
    url = cluster().emptied()
    flags = {"store.url": url, "store.tenant": "one"}
    one = await build(Settings(home=tmp_path / "one", flags=flags, environment={}))
    postgres = Postgres(url)
    try:
        await one.memory.store.add([Memory(text="the kettle is red", tenant="two")])
        assert len(await one.memory.store.list(Scope(tenant="two"))) == 1
        count = Statement("SELECT count(*) FROM upwell.memory WHERE tenant = %(tenant)s", {})
        assert await postgres.ask("two", count) == [[(0,)]]
        assert await postgres.ask("one", count) == [[(1,)]]
    finally:
        await postgres.aclose()
        await one.aclose()
