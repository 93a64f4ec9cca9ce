"""tests/NAMES.md is complete and true. Every name and constant of the five seeds has a row. What a
row points at exists, and has the seed's default. Each row has one test, which reaches upwell
in the way that the last column (the "door") says."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.seeds.rows import FIXTURES
from tests.test_docs import keys, verbs
from upwell.compress import STRATEGIES
from upwell.config import SECTIONS

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "upwell"
PAGE = (ROOT / "tests" / "NAMES.md").read_text(encoding="utf-8")

SEED_NAMES = {
    "000": """
        _context_query | 5-level context extraction | tool-specific query template |
        relevance gating | INJECTION_MODE | min_score | circuit_max_failures |
        circuit_reset_seconds | timeout 3 s | 15 calls a minute | Jaccard > 0.95 in 5 s |
        DEDUP_TTL_SECONDS | 3000 chars | query_retention_days | persist_query_text | helpful |
        partially_helpful | not_relevant | already_known | auto-tuner | sha256 digest |
        feedback_demotion_negative_threshold | LTM_MCP_TRANSPORT | LTM_MCP_URL |
        LTM_MCP_HEADERS | trace_id | mms hook | stm_proxy_read_more | write-tool skip |
        model-aware defaults
    """,
    "001": """
        add_memory | search_memory | delete_memory | clear_stm | stm.json | created_at |
        viewed_at | 35 days | 3 results | STM_SHOW_STATUS | YYYY-MM-DD
    """,
    "002": """
        ten strategies | stm_proxy_read_more | MIN_RESULT_RETENTION | PROGRESSIVE_FOOTER_TOKEN |
        progressive → hybrid → truncate | llm_timeout_seconds | max_result_chars |
        auto-selection | query-aware budget | NaN, Infinity | information loss
    """,
    "003": """
        memory_context | memory.backend | memory_search | memory_get | MEMORY.md |
        .memory.sqlite | /agent:doctor | deriveQueries | stop words | formatDigest |
        memoryContext.enabled | memoryContext.maxResults | memoryContext.includeRecency |
        memoryContext.halfLifeDays | 1.15 | 500 characters | top 5 keywords | 3 words
    """,
    "004": """
        six intent types | hybrid detection | use_llm | llm_timeout_ms | namespace weights |
        max_tokens | ~200 characters | 0.5 / 0.8 | max_count | memory URN | topic index |
        subcog://topics/{topic} | reminder
    """,
}
"""Per seed, the names and constants that a row must carry, as the row spells them."""

DEFAULTS: dict[str, Any] = {
    "surface.circuit_max_failures": 3,
    "surface.circuit_reset_seconds": 60,
    "surface.timeout_seconds": 3,
    "surface.rate_per_minute": 15,
    "surface.cooldown_seconds": 5,
    "surface.cooldown_similarity": 0.95,
    "surface.dedup_ttl_seconds": 604_800,
    "surface.max_injection_chars": 3_000,
    "surface.query_retention_days": 30,
    "surface.persist_query_text": True,
    "surface.feedback_demotion_negative_threshold": 3,
    "surface.injection_mode": "append",
    "surface.multi_match_boost": 1.15,
    "surface.max_tokens": 4_000,
    "surface.preview_chars": 200,
    "intent.min_confidence": 0.5,
    "intent.llm_timeout_ms": 200,
    "memory_context.enabled": True,
    "memory_context.max_results": 4,
    "memory_context.include_recency": True,
    "memory_context.half_life_days": 30,
    "memory.backend": "builtin",
    "stm.retention_days": 35,
    "stm.max_results": 3,
    "compress.min_result_retention": 0.65,
    "compress.llm_timeout_seconds": 60,
    "compress.strategy": "auto",
}
"""The seeds' constants under our keys."""


def rows() -> list[tuple[str, str, str]]:
    """For each row: the seeds, the name in the seeds, and its counterpart here."""
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in PAGE.splitlines()
        if re.match(r"\| \d{3}", line)
    ]
    return [(seeds, name, pointer) for seeds, name, pointer, _ in cells]


def doors() -> dict[str, str]:
    """The door of each row, by the name in the seeds."""
    lines = [line for line in PAGE.splitlines() if re.match(r"\| \d{3}", line)]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {name: door for _, name, *_, door in cells}


def marked() -> Iterator[tuple[str, set[str]]]:
    """The row that each marked test uses, and the test's fixtures."""
    for path in (ROOT / "tests" / "doors").rglob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                fixtures = {argument.arg for argument in node.args.args}
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "row":
                        yield ast.literal_eval(mark.args[0]), fixtures


def code_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def definitions() -> Iterator[str]:
    """Every top-level name of the package, and `Class.member`."""
    for path in SRC.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            yield from names_of(node)


def names_of(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    yield from (target.id for target in targets if isinstance(target, ast.Name))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            yield from (f"{node.name}.{name}" for name in names_of(child))


DEFINED = frozenset(definitions())
TOOLS_SOURCE = "".join(path.read_text(encoding="utf-8") for path in (SRC / "tools").glob("*.py"))
ALL_SOURCE = "".join(path.read_text(encoding="utf-8") for path in SRC.rglob("*.py"))


def exists(code: str) -> bool:
    """True if `code`, a text in backticks, names something that exists here."""
    file, _, symbol = code.partition(": ")
    if file.endswith((".py", ".toml")) and "/" in file:
        path = SRC / file
        return path.is_file() and (not symbol or symbol.rpartition(".")[2] in path.read_text())
    if code.startswith("upwell://"):
        return code.partition("{")[0].rstrip("/") in ALL_SOURCE
    if code.startswith("upwell__"):
        return f'"{re.split(r"[({]", code.removeprefix("upwell__"))[0]}"' in TOOLS_SOURCE
    if code.startswith("upwell."):
        module, _, name = code.rpartition(".")
        return name in DEFINED and (SRC / f"{module[7:].replace('.', '/')}.py").is_file()
    if code.startswith("upwell "):
        return code.split()[1] in verbs()
    if re.fullmatch(r"[a-z_]+\.[a-z_]+", code) and code.partition(".")[0] in SECTIONS:
        return code in keys()
    if re.fullmatch(r"[\w-]+\.(db|json|toml)", code):
        return f'"{code}"' in ALL_SOURCE
    return code in DEFINED or code in STRATEGIES or code in verbs() or f'"{code}"' in ALL_SOURCE


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]} {row[1][:40]}")
def test_every_row_leads_somewhere(row: tuple[str, str, str]) -> None:
    _, name, pointer = row
    assert name
    assert pointer
    pointers = code_in(pointer)
    assert pointers or pointer == "the same variable", f"{name}: no pointer into the code"
    assert [code for code in pointers if not exists(code)] == []


def test_every_row_has_one_test_that_uses_it_through_its_door() -> None:
    tests = list(marked())
    assert sorted(name for name, _ in tests) == sorted(doors())
    wrong = [name for name, fixtures in tests if not FIXTURES[doors()[name]] & fixtures]
    assert wrong == []


@pytest.mark.parametrize("seed", SEED_NAMES)
def test_every_name_of_a_seed_has_a_row(seed: str) -> None:
    names = [name for seeds, name, _ in rows() if seed in seeds.split(", ")]
    required = [" ".join(part.split()) for part in SEED_NAMES[seed].split("|")]
    assert [want for want in required if not any(want in name for name in names)] == []


def test_constants_have_the_values_of_the_seeds() -> None:
    actual = {
        f"{section}.{field.name}": field.default
        for section, options in SECTIONS.items()
        for field in dataclasses.fields(options)
    }
    assert {key: actual[key] for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_constant_has_a_row(key: str) -> None:
    assert any(key in code_in(pointer) for _, _, pointer in rows()), key


@pytest.mark.parametrize(
    "code",
    ["surface/nothing.py", "surface/query.py: no_such", "surface.no_such", "upwell nothing",
     "upwell__nothing", "upwell://nothing", "NoSuchName", "nothing.db"],
)  # fmt: skip
def test_the_check_notices_a_dead_pointer(code: str) -> None:
    assert not exists(code)
