"""The files of a home, and the kinds of entries in its TTL store."""

import ast
from collections.abc import Iterator
from pathlib import Path

import upwell
from upwell.app.memory import open_ttl_store, private_ttl_store
from upwell.app.store import Files
from upwell.config import load
from upwell.ground.ledger import EntryKind, TtlStore

METHODS = {"get", "put", "scan", "drop", "delete", "touch", "incr", "compare_and_set"}


def caps(ttl_store: TtlStore) -> dict[str, int]:
    return dict(ttl_store._caps)


def literal_kinds(tree: ast.AST) -> Iterator[str]:
    """String literals that are passed as the kind of a TTL store's entry."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        called = ast.unparse(node.func)
        is_store = "ttl_store." in called and called.rpartition(".")[2] in METHODS
        kind = node.args[0]
        if (is_store or called == "Entries") and isinstance(kind, ast.Constant):
            yield str(kind.value)


def test_every_kind_is_named_in_one_place() -> None:
    folder = Path(upwell.__file__).parent
    literals = {
        str(path.relative_to(folder)): result
        for path in folder.rglob("*.py")
        if (result := list(literal_kinds(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert literals == {}
    assert list(literal_kinds(ast.parse("self._ttl_store.put('x', {})"))) == ["x"]
    assert list(literal_kinds(ast.parse("Entries('x', {}, 1.0)"))) == ["x"]


async def test_the_caps_belong_to_kinds(tmp_path: Path) -> None:
    files = Files()
    config = load(tmp_path, {}, {})
    config.home.prepare()
    result = caps(open_ttl_store(config, files))
    for database in files.databases:
        await database.aclose()
    assert set(result) <= set(EntryKind)
    assert (result[EntryKind.ORIGINAL], result[EntryKind.RESPONSE]) == (256_000_000, 64_000_000)
    assert set(caps(private_ttl_store())) == {EntryKind.ORIGINAL}


async def test_a_kind_is_stored_under_its_own_name() -> None:
    """Entries of earlier versions are found again."""
    ttl_store = TtlStore()
    await ttl_store.put(EntryKind.ORIGINAL, {"k": b"v"}, ttl_seconds=9)
    assert (await ttl_store.get("original", ["k"]))["k"].value == b"v"
