"""Memory's packages import one way, and ranking knows nothing of SQL."""

import ast
from collections import defaultdict
from pathlib import Path

MEMORY = Path(__file__).parents[3] / "src" / "upwell" / "memory"


def imported(path: Path) -> set[str]:
    """The modules that a file imports, at its top or inside of a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def parts() -> dict[str, set[str]]:
    """Each package or file of memory → the others that it imports."""
    graph: dict[str, set[str]] = defaultdict(set)
    for path in MEMORY.rglob("*.py"):
        own = path.relative_to(MEMORY).with_suffix("").parts[0]
        for name in imported(path):
            if name.startswith("upwell.memory."):
                graph[own].add(name.split(".")[2])
        graph[own].discard(own)
    return graph


def test_the_packages_import_one_way() -> None:
    graph = parts()
    assert {"ranking", "sqlite", "documents", "library"} <= graph.keys()
    left = set(graph)
    while left:
        free = {part for part in left if not graph[part] & left}
        assert free, f"a circle among {sorted(left)}"
        left -= free


def test_ranking_has_no_sql() -> None:
    for path in (MEMORY / "ranking").glob("*.py"):
        foreign = {name for name in imported(path) if "sqlite" in name or "psycopg" in name}
        assert not foreign, f"{path.name} imports {foreign}"
