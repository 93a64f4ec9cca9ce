"""`tests/PROMISES.md` names tests that exist, and the hostile server has as many ways to misbehave
as the page claims."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS / "PROMISES.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.py): (test_\w+)`", PAGE)


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_test_that_the_page_names_exists():
    assert len(NAMED) > 50
    missing = [f"{file}: {test}" for file, test in NAMED if test not in functions(TESTS / file)]
    assert missing == []


def test_every_promise_names_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "| tests |" not in line]
    assert len(rows) > 25
    assert [row for row in rows if ".py: test_" not in row.split("|")[2]] == []


def test_the_hostile_server_has_as_many_ways_as_are_promised():
    tree = ast.parse((TESTS / "doors" / "servers" / "odd.py").read_text(encoding="utf-8"))
    sizes = {
        node.targets[0].id: len(node.value.keys)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Dict)
    }
    acts = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    acts = [name for name in acts if name not in ("whole", "tools", "start", "main")]
    ways = len(acts) + sizes["RESULTS"] + sizes["TEXTS"]
    promised = re.search(r"more than (\d+) ways", PAGE)
    assert promised
    assert ways > int(promised[1]) - 1
