"""`add_memory` with labels: where the note is found, and the remarks about missing files and near
duplicates.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from upwell.app import App, Settings, build
from upwell.ground.types.rpc import Principal, Role, granted, private_of

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
async def app(tmp_path: Path) -> Any:
    repository = tmp_path / "repo"
    (repository / ".git").mkdir(parents=True)
    (repository / "src").mkdir()
    (repository / "src" / "pay.py").write_text("")
    app = await build(Settings(home=tmp_path / "home", cwd=str(repository)))
    yield app
    await app.aclose()


async def added(app: App, principal: Principal | None = None, **args: object) -> list[str]:
    box = app.toolbox(principal) if principal else app.toolbox()
    reply = json.loads((await box.call("add_memory", args, "s")).result)
    texts = [block["text"] for block in reply["content"]]
    return ["refused", *texts] if reply.get("isError") else texts


async def test_a_note_is_found_under_its_labels(app: App) -> None:
    (note_id,) = await added(
        app,
        content="Refunds need an idempotency key.",
        namespace="decision",
        paths=["./src/pay.py"],
        tags=["payments", "payments"],
        kind="decision",
    )
    (raw,) = json.loads(app.notes.path.read_text())
    assert raw["namespace"] == "decisions"
    assert (raw["kind"], raw["paths"], raw["tags"]) == ("decision", ["src/pay.py"], ["payments"])
    (hit,) = await app.memory.search("refunds idempotency", namespaces=["decisions"])
    assert (hit.memory.id, hit.memory.paths) == (note_id, ("src/pay.py",))
    assert hit.memory.tags == ("decision", "payments")
    assert not await app.memory.search("refunds idempotency", namespaces=["context"])


@pytest.mark.parametrize(
    ("kind", "namespace"), [("pitfall", "learnings"), ("rule", "patterns"), ("fact", "context")]
)
async def test_a_kind_chooses_the_namespace(app: App, kind: str, namespace: str) -> None:
    await added(app, content="The harbour opens at six.", kind=kind)
    (note,) = app.notes.memories()
    assert note.namespace == namespace


async def test_a_plain_note_keeps_the_four_keys_of_the_file(app: App) -> None:
    note_id, remark = await added(app, content="The harbour opens at six.")
    (raw,) = json.loads(app.notes.path.read_text())
    assert (list(raw), raw["id"]) == (["id", "content", "created_at", "viewed_at"], note_id)
    assert "the note mentions no file" in remark


async def test_a_file_that_does_not_exist_is_reported(app: App) -> None:
    _, remark = await added(app, content="Fees are rounded.", paths=["src/fees.py", "src/pay.py"])
    assert remark == "no such file in this project: src/fees.py"
    assert len(await added(app, content="Refunds are in src/pay.py.")) == 1
    assert len(await added(app, content="Tabs, not spaces.", kind="preference")) == 1


@pytest.mark.parametrize("path", ["/etc/passwd.conf", "../outside.py", "src/*.py"])
async def test_paths_outside_the_project_and_globs_are_not_looked_up(app: App, path: str) -> None:
    assert len(await added(app, content="About a file.", paths=[path])) == 1


async def test_near_duplicates_are_named_with_their_text(app: App) -> None:
    first, *_ = await added(app, content="The pier tests need redis on port 6380.", tags=["pier"])
    stored = await app.memory.add({"text": "The pier tests need a redis on port 6380 first."})
    _, remarks = await added(app, content="The pier tests need redis on port 6380!")
    assert f"a similar memory is already stored: {first}: The pier tests need redis" in remarks
    assert stored.id in remarks
    _, remarks = await added(app, content="The lighthouse has a red door.")
    assert "already stored" not in remarks


async def test_secrets_in_labels_are_masked_and_reported(app: App) -> None:
    text, *_ = await added(app, content="About tokens.", tags=[f"is {TOKEN}"])
    assert text.count("a secret was masked before it was stored (github-pat)") == 1
    assert TOKEN not in app.notes.path.read_text()


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "poem"},
        {"tags": "one"},
        {"tags": [1]},
        {"paths": ["x" * 301]},
        {"tags": [str(number) for number in range(21)]},
        {"namespace": "two words"},
    ],
)
async def test_malformed_labels_are_refused_and_nothing_is_stored(app: App, wrong: Any) -> None:
    refused, *_ = await added(app, content="Anything.", **wrong)
    assert refused == "refused"
    assert app.notes.entries() == []


async def test_labels_that_a_person_garbled_in_the_file_do_not_count(app: App) -> None:
    note_id, *_ = await added(app, content="The harbour opens at six.", tags=["harbour"])
    (raw,) = json.loads(app.notes.path.read_text())
    app.notes.path.write_text(json.dumps([{**raw, "namespace": "two words", "tags": 3}]))
    (note,) = app.notes.memories()
    assert (note.id, note.namespace, note.tags) == (note_id, "context", ())


async def test_a_client_writes_and_finds_only_in_its_namespaces(app: App) -> None:
    bob = Principal("bob", ("context",))
    refused, text = await added(app, bob, content="We ship on Fridays.", namespace="decisions")
    assert (refused, "decisions" in text) == ("refused", True)
    hidden, *_ = await added(app, content="We ship on Mondays.", namespace="decisions")
    box = app.toolbox(bob)
    found = json.loads((await box.call("search_memory", {"query": "ship"}, "s")).result)
    assert found["content"][0]["text"] == "[]"
    gone = json.loads((await box.call("delete_memory", {"id": hidden}, "s")).result)
    assert gone["isError"]


async def test_a_private_note_is_seen_by_its_principal_only(app: App) -> None:
    ada, bob = granted("ada"), granted("bob")
    await added(app, ada, content="Refunds need an idempotency key.", namespace="me/ideas")
    (note,) = app.notes.memories()
    assert note.namespace == f"{private_of('ada')}ideas"
    for principal, found in ((ada, 1), (bob, 0)):
        hits = await app.memory.search("refunds idempotency", namespaces=principal.namespaces)
        assert len(hits) == found
        reply = await app.toolbox(principal).call("search_memory", {"query": "refunds"}, "s")
        assert (b"idempotency" in reply.result) == bool(found)
        again = await app.toolbox(principal).call("delete_memory", {"id": note.id}, "s")
        assert (b"isError" in again.result) != bool(found) or principal is bob


async def test_private_namespaces_cannot_be_forged(app: App) -> None:
    bob, target = granted("bob"), f"{private_of('ada')}ideas"
    await added(app, bob, content="The harbour opens at six.", namespace=target)
    (note,) = app.notes.memories()
    assert note.namespace.startswith(private_of("bob"))
    assert not granted("ada").sees(note.namespace)


async def test_a_reader_changes_nothing(app: App) -> None:
    note_id = (await added(app, content="The harbour opens at six."))[0]
    before = app.notes.path.read_bytes()
    box = app.toolbox(granted("ada", role=Role.READER))
    writes = [tool["name"] for tool in box.listed() if not tool["annotations"]["readOnlyHint"]]
    assert {"add_memory", "delete_memory", "feedback", "compression_feedback"} <= {*writes}
    for name in writes:
        reply = json.loads((await box.call(name, {"id": note_id}, "s")).result)
        assert reply["isError"]
        assert "may only read" in reply["content"][0]["text"]
    assert app.notes.path.read_bytes() == before
    assert b"harbour" in (await box.call("memory_search", {"query": "harbour"}, "s")).result


async def test_read_only_namespaces_are_changed_by_admins_only(tmp_path: Path) -> None:
    flags = {"store.read_only": ["standards", "team/*"]}
    app = await build(Settings(home=tmp_path / "home", flags=flags, cwd=str(tmp_path)))
    admin = granted("root", role=Role.ADMIN)
    try:
        for name in ("standards", "team/style"):
            refused = await added(app, granted("ada"), content="Tabs.", namespace=name)
            assert "read-only" in refused[1]
            note_id = (await added(app, admin, content=f"Spaces in {name}.", namespace=name))[0]
            gone = await app.toolbox(granted("ada")).call("delete_memory", {"id": note_id}, "s")
            assert b"read-only" in gone.result
            gone = await app.toolbox(admin).call("delete_memory", {"id": note_id}, "s")
            assert b"isError" not in gone.result
        others = await added(app, granted("ada"), content="Else.", namespace="other")
        assert others[0] != "refused"
    finally:
        await app.aclose()
