"""Nothing passes from one tenant to another, whatever their names: by search, context, topics,
notes, originals, ratings, ledger, journal, dashboard or logs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from tests.postgres import cluster

from upwell.app import App, Settings, build
from upwell.app import tenants as tenants_module
from upwell.app.dashboard.desk import VIEWS
from upwell.app.tenants import Tenants
from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.postgres import connection
from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.ground.types.principal import OWNER, Principal, granted
from upwell.ground.types.surfacing import Feedback, Rating, Surfacing
from upwell.memory.recall import StoreRecall
from upwell.testing import ManualClock

HOSTILE = [
    *("acme", "Acme", "acme ", "acme'; DROP TABLE upwell.memory; --", "../default", "a/b", "%"),
    *("_", "*", "me/*", "acme\\", "acm\u00e9", "acme\u0301", "\u202eacme", "0", "-1", "null", "🦊"),
]
TOPIC = "the settlement job of the ledger runs before midnight"


@pytest.fixture
def clock() -> Clock:
    return SYSTEM_CLOCK


@pytest.fixture(params=["sqlite", "postgres"])
async def tenants(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[Tenants]:
    flags = {"store.url": cluster().emptied()} if request.param == "postgres" else {}
    own = await build(Settings(home=tmp_path / "home", flags=flags, environment={}, cwd=None))
    opened = Tenants(own, clock=clock)
    yield opened
    await opened.aclose()
    await own.aclose()


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


@pytest.mark.slow
async def test_nothing_crosses_a_tenant(tenants: Tenants, tmp_path: Path) -> None:
    names = ["", *HOSTILE]
    ids = []
    for number, tenant in enumerate(names):
        async with tenants.of(tenant) as opened:
            ids.append(await filled(opened.app, granted("ada", tenant=tenant), word(number)))
    for number, tenant in enumerate(names):
        async with tenants.of(tenant) as opened:
            for principal in (granted("ada", tenant=tenant), OWNER):
                own = await everything_seen(opened.app, principal, ids[number])
                assert word(number) in own
                foreign = await everything_seen(opened.app, principal, ids[(number + 1) % len(ids)])
                others = {word(other) for other in range(len(names)) if other != number}
                assert not {secret for secret in others if secret in own + foreign}, tenant
            assert len(await opened.app.memory.list()) == 1, "no other tenant deleted it"
    log = "".join(path.read_text() for path in (tmp_path / "home" / "log").glob("*"))
    assert "kestrel" not in log


async def test_a_principal_of_the_homes_own_tenant_uses_its_app(tenants: Tenants) -> None:
    async with tenants.of("") as own, tenants.of("default") as same, tenants.of("x") as other:
        assert same.app is own.app
        assert other.app is not own.app


@pytest.mark.parametrize("tenants", ["sqlite"], indirect=True)
async def test_the_expired_notes_of_a_tenant_go_to_the_trash(
    tenants: Tenants, tmp_path: Path
) -> None:
    async with tenants.of("") as own:
        home = own.app.config.home.of_tenant("acme").prepare()
    long_ago = "2020-01-01T00:00:00+00:00"
    times = {"created_at": long_ago, "viewed_at": long_ago}
    home.notes_file.write_text(json.dumps([{"id": "n1", "content": "the tide turns", **times}]))
    async with tenants.of("acme") as opened:
        assert opened.app.notes.entries() == []
        assert "the tide turns" in opened.app.notes.trash.read_text()


@pytest.mark.parametrize("clock", [ManualClock()])
async def test_idle_apps_are_closed_and_opened_again(
    tenants: Tenants, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants_module, "MAX_OPEN", 2)
    async with tenants.of("a") as first:
        await first.app.memory.add({"text": "the kettle of a"})
        async with tenants.of("b"), tenants.of("c"), tenants.of("a") as again:
            assert again.app is first.app, "an app in use stays open"
    clock.advance(10_000)
    await tenants.close_idle()
    async with tenants.of("a") as reopened:
        assert reopened.app is not first.app
        assert [memory.text for memory in await reopened.app.memory.list()] == ["the kettle of a"]


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
