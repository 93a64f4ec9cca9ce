"""Files and functions stay readable."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import DOORS, SLOW_DOORS

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "upwell"
MAX_FILE_LINES = 600
MAX_TEST_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
MAX_COLLABORATORS = 7
BANNED = ("manager", "handler", "helper", "util", "common", "misc")


def product_files() -> Iterator[Path]:
    yield from sorted(SRC.rglob("*.py"))


def too_long(path: Path, limit: int) -> bool:
    return len(path.read_text(encoding="utf-8").splitlines()) > limit


def test_files_stay_short() -> None:
    assert [str(path) for path in product_files() if too_long(path, MAX_FILE_LINES)] == []


def test_test_files_stay_short() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert [str(path) for path in files if too_long(path, MAX_TEST_FILE_LINES)] == []


def oversized(source: str) -> list[str]:
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                wrong.append(f"{node.name}: {lines} lines")
    return wrong


def test_functions_stay_small() -> None:
    wrong = {
        str(path): result
        for path in product_files()
        if (result := oversized(path.read_text(encoding="utf-8")))
    }
    assert wrong == {}


def test_constructors_take_few_collaborators() -> None:
    wrong = {
        f"{path.relative_to(SRC)}:{node.lineno}": count
        for path in product_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        if (count := len([*node.args.args[1:], *node.args.kwonlyargs])) > MAX_COLLABORATORS
    }
    assert wrong == {}, "group what belongs together into one object"


def test_the_gate_notices_a_long_function() -> None:
    body = "\n".join("    x = 1" for _ in range(MAX_FUNCTION_LINES))
    assert oversized(f"def f():\n{body}\n") == ["f: 81 lines"]


def test_names_say_what_a_thing_is() -> None:
    wrong = [
        str(path.relative_to(SRC))
        for path in product_files()
        if any(word in path.stem.lower() for word in BANNED)
    ]
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            banned = ("Manager", "Handler", "Helper")
            if isinstance(node, ast.ClassDef) and node.name.endswith(banned):
                wrong.append(f"{path.stem}.{node.name}")
    assert wrong == []


def test_slow_doors_are_files() -> None:
    missing = {name for name in SLOW_DOORS if not (DOORS / f"test_{name}.py").is_file()}
    assert missing == set()
