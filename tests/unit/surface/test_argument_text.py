"""The arguments of a call as words, and the five levels at which they become a query."""

import pytest

from upwell.ground.text.lexicon import shipped
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import QuerySource
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.surface.query import CueReader, speech_of

EVERY_MOMENT = PipelineOptions(surface=SurfaceOptions(moments="all"))

SPEECH = speech_of(shipped())


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("/home/me/harbour/src/berth/pricing_rules.py", None, "berth pricing rules"),
        ("/home/me/harbour/src/berth/pricing_rules.py", "/home/me/harbour", "berth pricing rules"),
        ("/work/harbour/src/TideTable.tsx", "/work/harbour", "tide table"),
        ("C:\\code\\harbour\\tides.go", None, "harbour tides"),
        ("docs/berth/README.md", None, "docs berth"),
        ("README.md", None, ""),
        (".gitignore", None, ""),
        ("/home/me/harbour/package-lock.json", None, ""),
        ("src/index.ts", None, ""),
        ("", None, ""),
        ("/", None, ""),
    ],
)
def test_a_path_becomes_words(path: str, root: str | None, expected: str) -> None:
    assert SPEECH.path(path, root) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/acme/harbour/issues/2489", ""),
        ("https://github.com/acme/harbour/blob/main/src/berth/fees.py", "berth fees"),
        ("https://docs.stripe.com/webhooks/signatures", "docs stripe webhooks signatures"),
        ("https://www.example.org/tide%20tables/2026.html", "example tide tables"),
        ("http://[broken", ""),
        ("https://", ""),
    ],
)
def test_an_address_becomes_words(url: str, expected: str) -> None:
    assert SPEECH.address(url) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git status", ""),
        ("ls -la && pwd", ""),
        ("python -m pytest tests/berth/test_fees.py -x -q", "berth fees"),
        ("rg -n 'cancellation_fee' src | head -20", "cancellation_fee"),
        ("FOO=1 npm run build --silent", ""),
        ("git log --oneline -5 -- src/billing/kontera.py", "billing kontera"),
        ('grep -rn "def handle_payment\\b" src/', "def handle_payment"),
        ("echo 'unbalanced", "unbalanced"),
        ("sed -n 1,80p src/berth/fees.py", "1,80p berth fees"),
        ("", ""),
    ],
)
def test_a_command_becomes_words(line: str, expected: str) -> None:
    assert SPEECH.command(line) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parse_etag repo:acme/harbour language:python", "parse_etag"),
        ("tide path:src/tides/feed.py", "tide tides feed"),
        ("why is time:now odd?", "why is time:now odd?"),
        ("see https://github.com/acme/harbour/pull/7 for fees", "see for fees"),
    ],
)
def test_a_search_becomes_words(text: str, expected: str) -> None:
    assert SPEECH.value(text) == expected


def levels(tool: str, args: dict, templates: dict | None = None) -> tuple[str, QuerySource]:
    return CueReader(templates or {}).five_levels(tool, args)


EVERYTHING = {
    "_context_query": "token refresh",
    "file_path": "/home/me/harbour/src/berth/fees.py",
    "query": "mooring",
    "description": "lines of a pontoon",
}


@pytest.mark.parametrize(
    ("left_out", "text", "source"),
    [
        ((), "pontoon fees", QuerySource.TEMPLATE),
        (("template",), "token refresh", QuerySource.AGENT),
        (("template", "_context_query"), "berth fees", QuerySource.PATH),
        (
            ("template", "_context_query", "file_path"),
            "mooring lines of a pontoon",
            QuerySource.KEYS,
        ),
        (
            ("template", "_context_query", "file_path", "query", "description"),
            "list moorings",
            QuerySource.TOOL_NAME,
        ),
    ],
)
def test_the_first_usable_level_wins(
    left_out: tuple[str, ...], text: str, source: QuerySource
) -> None:
    args = {key: value for key, value in EVERYTHING.items() if key not in left_out}
    templates = {} if "template" in left_out else {"harbour__*": "pontoon fees"}
    assert levels("harbour__list_moorings", args, templates) == (text, source)


@pytest.mark.parametrize("key", ["path", "file", "filepath", "file_path", "filename"])
def test_every_path_key_of_the_seed_counts(key: str) -> None:
    assert levels("x__open", {key: "src/berth/fees.py"}) == ("berth fees", QuerySource.PATH)


@pytest.mark.parametrize("key", ["query", "search", "url", "description"])
def test_every_semantic_key_of_the_seed_counts(key: str) -> None:
    assert levels("x__ask", {key: "mooring lines"}) == ("mooring lines", QuerySource.KEYS)


@pytest.mark.parametrize(
    ("template", "args", "text", "source"),
    [
        ("{a} and {b}", {"a": "tides", "b": "fees"}, "tides and fees", QuerySource.TEMPLATE),
        ("{filter.title}", {"filter": {"title": "tides"}}, "tides", QuerySource.TEMPLATE),
        ("{filter.title}", {"filter.title": "tides"}, "tides", QuerySource.TEMPLATE),
        ("orders {customer}", {"query": "tides"}, "tides", QuerySource.KEYS),
        ("{a}", {"a": ["tides", 3, "fees"]}, "tides fees", QuerySource.TEMPLATE),
        ("{a}", {"a": {"b": 1}, "query": "tides"}, "tides", QuerySource.KEYS),
        ("{a.b.c}", {"a": "x", "query": "tides"}, "tides", QuerySource.KEYS),
    ],
)
def test_templates_have_placeholders(
    template: str, args: dict, text: str, source: QuerySource
) -> None:
    assert levels("crm__find", args, {"crm__*": template}) == (text, source)


@pytest.mark.parametrize(
    ("tool", "args", "text"),
    [
        ("Bash", {"command": "pytest tests/test_fees.py", "description": "Run tests"}, "fees"),
        ("Grep", {"pattern": "mooring", "path": "/home/me/harbour/src"}, "mooring"),
        ("WebSearch", {"query": "tide tables api"}, "tide tables api"),
        (
            "WebFetch",
            {"url": "https://github.com/a/b/issues/1", "prompt": "what of tides?"},
            "what of tides?",
        ),
        ("Task", {"description": "Fees", "prompt": "look at fees"}, "Fees look at fees"),
        ("mcp__github__search_code", {"query": "berth repo:a/b"}, "berth"),
        ("fs__search_files", {"path": "/x", "pattern": "tide"}, "tide"),
    ],
)
def test_known_tools_have_templates(tool: str, args: dict, text: str) -> None:
    assert levels(tool, args) == (text, QuerySource.TEMPLATE)


@pytest.mark.parametrize(
    "cue",
    [
        Cue(door="tool", tool="fs__get_file_info", args={}),
        Cue(door="tool", tool="fs__list_directory", args={"path": "/home/me/harbour"}),
        Cue(door="tool", tool="Bash", args={"command": "git status"}),
        Cue(door="tool", tool="LS", args={"path": "/home/me/harbour/src"}),
        Cue(door="tool", tool="Bash", args={}),
    ],
)
async def test_generic_tool_names_are_not_searched_for(cue: Cue) -> None:
    from upwell.ground.ledger import TtlStore
    from upwell.testing import FakeRecall

    recall = FakeRecall()
    await Surfacer(recall, TtlStore(), EVERY_MOMENT).surface(cue)
    assert recall.asked == []
