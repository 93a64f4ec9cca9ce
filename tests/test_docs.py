"""The docs are complete: every verb, key, host, skip reason and strategy has its row."""

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from upwell.cli.main import PLACES
from upwell.compress import STRATEGIES
from upwell.config import SECTIONS
from upwell.gateway.options import ServerOptions
from upwell.ground.types.cue import SkipReason
from upwell.hosts import HOSTS
from upwell.replay.transcripts import NAMES
from upwell.surface.options import NOT_PER_TOOL

ROOT = Path(__file__).parents[1]
PAGES = ("reference", "servers", "team", "memory")
REFERENCE = "\n".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)


def verbs() -> list[str]:
    return sorted(PLACES)


def keys() -> list[str]:
    return [f"{s}.{f.name}" for s, kind in SECTIONS.items() for f in dataclasses.fields(kind)]


def missing(names: Iterable[str], page: str, section: str) -> list[str]:
    """The missing rows: a line for each name without a row in the tables of this section."""
    text = (ROOT / page).read_text(encoding="utf-8")
    body = text.partition(f"\n{section}\n")[2].partition("\n## ")[0] if section else text
    cells = [line.split("|")[1] for line in body.splitlines() if line.startswith("| ")]
    return [
        f"{page}, {section or 'first table'}: add a row for `{name}`"
        for name in names
        if not any(re.search(rf"`{re.escape(name)}[ `]", cell) for cell in cells)
    ]


def servers_of_hosts() -> list[str]:
    return [host.title for host in HOSTS.values() if host.servers]


ROWS = {
    "verbs": ([f"upwell {verb}" for verb in verbs()], "docs/reference.md", "## Commands"),
    "config keys": (keys(), "docs/reference.md", "## Configuration"),
    "hosts": (HOSTS, "docs/reference.md", "## Hooks"),
    "skip reasons": (SkipReason, "docs/reference.md", "## Skip reasons"),
    "strategies": (STRATEGIES, "docs/compression.md", ""),
    "transcripts": (NAMES, "docs/dashboard.md", "## What a replay reads"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_each_has_a_row_in_the_docs(kind: str) -> None:
    assert missing(*ROWS[kind]) == []


def test_every_agent_with_a_file_of_servers_has_a_row() -> None:
    section = REFERENCE.partition("\n## Servers of agents\n")[2].partition("\n## ")[0]
    agents = re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)
    lost = [title for title in servers_of_hosts() if title not in agents]
    assert lost == [], "add a row for them to docs/servers.md, ## Servers of agents"


def test_the_reference_names_every_strategy() -> None:
    (row,) = [line for line in REFERENCE.splitlines() if line.startswith("| `compress.strategy` |")]
    lost = [name for name in STRATEGIES if f"`{name}`" not in row]
    assert lost == [], "name them in docs/reference.md, ## Configuration, `compress.strategy`"


def test_the_check_notices_what_is_missing() -> None:
    (line,) = missing(["no_such_reason"], "docs/reference.md", "## Skip reasons")
    assert line == "docs/reference.md, ## Skip reasons: add a row for `no_such_reason`"


def test_every_documented_verb_exists():
    documented = set(re.findall(r"`upwell (\w+)", REFERENCE))
    assert documented - {*verbs(), "hook"} == set()


def test_every_key_is_documented_with_its_default():
    for section, kind in SECTIONS.items():
        for entry in dataclasses.fields(kind):
            row = next(
                line for line in REFERENCE.splitlines() if f"| `{section}.{entry.name}`" in line
            )
            if isinstance(entry.default, bool | int | float):
                shown = row.split("|")[2].strip()
                assert shown == f"{entry.default:g}".lower() or shown == str(entry.default).lower()


def test_every_documented_key_exists():
    documented = re.findall(r"^\| `([a-z_]+\.[a-z_]+)`", REFERENCE, re.MULTILINE)
    files = {
        "config.toml",
        "memory.db",
        "index.db",
        "ledger.db",
        "sessions.db",
        "stm.json",
        "folder.json",
        "hooks.json",
        "upwell-hook",
        "bin/upwell",
        "clients.json",
        "wrapped.json",
        "tokens.json",
        "tools.json",
        "logins.json",
        "offer.json",
        "inbox.json",
        "setup.json",
        "audit.jsonl",
        "lexicon.toml",
    }
    assert set(documented) - files == set(keys())


def test_every_key_of_a_server_is_documented():
    own = [entry.name for entry in dataclasses.fields(ServerOptions) if entry.name != "name"]
    assert [name for name in own if f"`{name}`" not in REFERENCE.replace("server.NAME.", "")] == []


def test_readme_begins_with_the_two_commands():
    block = (ROOT / "README.md").read_text(encoding="utf-8").split("```")[1]
    assert [line.split("#")[0].strip() for line in block.splitlines()[1:3]] == [
        "make demo",
        "make test",
    ]


def test_every_package_is_in_the_layout():
    layout = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Layout")[1]
    rooms = [path.parent.name for path in (ROOT / "src" / "upwell").glob("*/__init__.py")]
    assert [room for room in rooms if f"{room}/" not in layout.split("```")[1]] == []


def test_every_script_that_reads_another_program_has_a_row():
    page = (ROOT / "docs" / "moving-in.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| `(\w+\.py)", page, re.MULTILINE)
    scripts = (ROOT / "examples" / "import").glob("*.py")
    assert sorted(rows) == sorted(script.name for script in scripts)


def test_every_file_named_in_contributing_exists():
    pages = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"[`(\s]((?:[a-z_]+/)+[a-z_]+\.[a-z]+)", pages)
    roots = (ROOT, ROOT / "src" / "upwell")
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
    assert len(named) > 20


def test_local_links_resolve():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} → {target}"


def test_the_keys_that_cannot_differ_by_tool_are_named() -> None:
    paragraph = REFERENCE.split("Some keys of `surface.*`")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", paragraph)) == NOT_PER_TOOL


def test_the_search_of_the_site_ranks_pages_that_exist() -> None:
    source = (ROOT / "dev" / "docs_site.py").read_text(encoding="utf-8")
    boosts = source.partition("SEARCH_BOOSTS = ")[2].partition("\n}\n")[0]
    ranked = set(re.findall(r'"([a-z-]+\.md)"', boosts))
    generated = {"commands.md", "changes.md", "contributing.md"}
    assert ranked - generated - {path.name for path in (ROOT / "docs").glob("*.md")} == set()
    assert {"faq.md", "contributing.md"} <= ranked


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = set(re.findall(r": ([a-z-]+\.md)$", navigation, re.MULTILINE))
    generated = {"commands.md", "changes.md", "contributing.md"}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages - named == set(), "name them in mkdocs.yml, nav"
    assert named - pages == generated


@pytest.mark.parametrize("page", sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]))
def test_no_page_has_the_marks_of_a_merge_conflict(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith(("<<<<<<< ", ">>>>>>> "))] == []
