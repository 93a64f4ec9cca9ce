"""Ranking knows nothing of SQL."""

import ast
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


def test_ranking_has_no_sql() -> None:
    for path in (MEMORY / "ranking").glob("*.py"):
        foreign = {name for name in imported(path) if "sqlite" in name or "psycopg" in name}
        assert not foreign, f"{path.name} imports {foreign}"
