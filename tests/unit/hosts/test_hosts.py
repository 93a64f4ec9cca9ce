"""Checks every place that needs to know an agent, for every agent in `HOSTS`: if somebody adds an
agent and forgets a place, a test here fails.
"""

from collections.abc import Set
from pathlib import Path, PurePosixPath

import pytest
from tests.doors.hook_events import HOSTS as DOCUMENTED
from tests.unit.hosts.test_install import FOREIGN

from upwell.ground.types.cue import Cue, Door
from upwell.hook.client import EVENTS, IGNORED_TOOLS, PROMPTS, SESSIONS
from upwell.hosts import HOSTS, server_files
from upwell.hosts.base import Host
from upwell.hosts.events import EventKind
from upwell.hosts.install import exported
from upwell.hosts.installation import HttpAddress, Installation
from upwell.hosts.settings import JsonHooks
from upwell.replay.transcripts import FORMATS
from upwell.replay.transcripts.base import tool_name
from upwell.surface.event import writes

DOCS = Path(__file__).parents[3] / "docs" / "hooks.md"
ALL = [pytest.param(host, id=name) for name, host in HOSTS.items()]
BODIES = {
    EventKind.SESSION: {"source": "startup"},
    EventKind.PROMPT: {"prompt": "How often does the winch need grease?"},
    EventKind.TOOL: {},
}


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    client = ("/opt/python", "-I", "-S", "/opt/lib/upwell/hook/client.py")
    (tmp_path / "me").mkdir()
    return Installation(user_folder=tmp_path / "me", environment={}, command=client, socket="/s")


@pytest.mark.parametrize("host", ALL)
def test_its_name_is_one_word_of_the_command_line(host: Host) -> None:
    assert HOSTS[host.name] is host
    assert host.name.isascii()
    assert host.name.isalnum(), "the hook's client accepts nothing else"
    assert host.title


@pytest.mark.parametrize("host", [param for param in ALL if param.values[0].hooks.http_setup])
def test_its_requests_are_recognised_as_ours(host: Host, installation: Installation) -> None:
    over_http = Installation(
        user_folder=installation.user_folder,
        environment={},
        command=installation.command,
        http=HttpAddress(port=47_620, token="t"),
    )
    written = host.hooks.with_ours("", over_http)
    assert f"http://127.0.0.1:47620/hook/{host.name}" in written
    assert host.hooks.without_ours(written) == ""


@pytest.mark.parametrize("host", ALL)
def test_its_export_names_the_tools_as_the_host_shows_them(host: Host) -> None:
    (text,) = exported(host).values()
    for tool in ("memory_context", "memory_search", "memory_get"):
        assert f"`{host.export.tool_name.format(f'upwell__{tool}')}`" in text


@pytest.mark.parametrize("host", ALL)
def test_its_probe_starts_a_session_with_the_installed_command(
    host: Host, installation: Installation
) -> None:
    name, payload = host.events.start("upwell-setup-1", "/code/shop")
    event = host.events.read(name, payload)
    assert event is not None
    assert (event.kind, event.session) == (EventKind.SESSION, "upwell-setup-1")
    assert event.cwd == "/code/shop"
    text = host.hooks.with_ours("", installation)
    words = " ".join(host.hooks.command(text, name))
    assert f"client.py {host.name}" in words
    assert list(host.hooks.command("", name)) == []


@pytest.mark.parametrize("host", ALL)
def test_its_events_pass_the_client_and_are_read(host: Host) -> None:
    assert host.events.kinds.keys() <= EVENTS, "add the new names to `EVENTS` in hook/client.py"
    assert {EventKind.SESSION, EventKind.TOOL} <= set(host.events.kinds.values())
    for name, kind in host.events.kinds.items():
        if kind in (EventKind.BEFORE, EventKind.TOOL):
            continue
        event = host.events.read(name, {"cwd": "/p", **BODIES.get(kind, {})})
        assert event is not None
        assert event.kind is kind
        assert host.events.context_output(event, "a memory")


@pytest.mark.parametrize("host", ALL)
def test_its_events_are_tried_through_the_real_hook(host: Host) -> None:
    """The door tests run over this table."""
    assert host.name in DOCUMENTED, "add its payloads to HOSTS in tests/doors/hook_events.py"
    case = DOCUMENTED[host.name]
    takes_prompts = EventKind.PROMPT in host.events.kinds.values()
    assert takes_prompts is (case.prompt is not None)
    (name,) = case.args("tool") or [case.tool("/p", "/p/a.py")["hook_event_name"]]
    event = host.events.read(name, case.tool("/p", "/p/a.py"))
    assert event is not None
    assert event.kind is EventKind.TOOL


@pytest.mark.parametrize("host", ALL)
def test_its_writing_tools_get_no_memories(host: Host) -> None:
    assert host.writers, "list its writing tools in `writers` in hosts/NAME.py"
    assert host.writers.keys() <= IGNORED_TOOLS, "add them to IGNORED_TOOLS in hook/client.py"
    unknown = [tool for tool in host.writers if not writes(Cue(door=Door.TOOL, tool=tool))]
    assert unknown == [], "add a pattern to WRITE_PATTERNS, or a verb, in surface/event.py"


def test_the_client_knows_no_event_that_no_host_sends() -> None:
    assert {name for host in HOSTS.values() for name in host.events.kinds} == EVENTS, (
        "correct EVENTS in hook/client.py"
    )


@pytest.mark.parametrize("host", ALL)
def test_its_tools_have_one_meaning_in_transcripts(host: Host) -> None:
    tools = {**host.recorded_tools, **host.writers, **host.events.readers}
    read = {name: tool_name(name) for name in tools}
    assert read == tools, "another host gives one of these names another meaning"


@pytest.mark.parametrize("host", ALL)
def test_its_transcripts_have_a_reader(host: Host) -> None:
    formats = {format.name for format in FORMATS}
    assert not host.transcripts or host.name in formats, (
        "add their FORMAT to FORMATS in replay/transcripts/__init__.py"
    )


@pytest.mark.parametrize("host", ALL)
def test_the_docs_describe_its_setup(host: Host) -> None:
    row = row_of(host, "Install, check, remove")
    file = host.hooks.path(Installation(user_folder=Path("~"), environment={}, command=())).name
    missing = [text for text in (host.title, file) if text not in row]
    assert missing == [], "name these in the row of docs/hooks.md"


@pytest.mark.parametrize("host", ALL)
def test_the_docs_say_what_it_allows(host: Host) -> None:
    assert row_of(host, "What each agent allows").count("|") == 8


def row_of(host: Host, section: str) -> str:
    """The row of a host in the table under a heading of docs/hooks.md."""
    text = DOCS.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith(f"| `{host.name}` |")]
    assert rows, f"add a row for `{host.name}` under {section!r} of docs/hooks.md"
    return rows[0]


@pytest.mark.parametrize("host", ALL)
def test_the_reference_tells_whether_it_refuses_calls(host: Host) -> None:
    reference = (DOCS.parent / "memory.md").read_text(encoding="utf-8")
    guards = reference.partition("\n## Guards\n")[2].partition("\n## ")[0]
    name = host.title.removeprefix("GitHub ")
    assert name in " ".join(guards.split()), f"name {name} under Guards in docs/memory.md"


@pytest.mark.parametrize("host", ALL)
def test_its_server_file_belongs_to_the_user_or_a_project(host: Host) -> None:
    if host.servers is None:
        return
    assert server_files()[host.name] is host.servers
    project = Path("/p")
    names = [file.name for file in host.servers.for_project(project)]
    assert bool(host.servers.project_file) == (f"{host.name}:{project}" in names)
    assert set(names) <= server_files(project).keys()


@pytest.mark.parametrize("host", ALL)
def test_its_files_lie_below_the_user_or_the_project(host: Host) -> None:
    loaded = host.auto_loaded
    of_project = (*loaded.folder, *loaded.fallback, *loaded.scoped)
    patterns = (*loaded.user, *of_project, *host.transcripts)
    assert loaded.folder, (
        "every host loads some instruction file: set `auto_loaded` in hosts/NAME.py"
    )
    for pattern in patterns:
        assert not PurePosixPath(pattern).is_absolute()
        assert ".." not in PurePosixPath(pattern).parts
    assert host.export.file in (*loaded.folder, *loaded.fallback) or any(
        PurePosixPath(host.export.file).match(pattern.replace("**/", ""))
        for pattern in loaded.scoped
    ), "the exported instruction would not be loaded"


@pytest.mark.parametrize(
    ("kind", "names"), [(EventKind.SESSION, SESSIONS), (EventKind.PROMPT, PROMPTS)]
)
def test_the_client_knows_how_long_each_event_may_take(kind: EventKind, names: Set[str]) -> None:
    """A session's start and a prompt have deadlines of their own."""
    of_kind = {
        name for host in HOSTS.values() for name, it in host.events.kinds.items() if it is kind
    }
    assert of_kind == names, "correct SESSIONS or PROMPTS in hook/client.py"


def test_every_hooks_file_meets_the_entries_of_others() -> None:
    without = {name for name, host in HOSTS.items() if isinstance(host.hooks, JsonHooks)} - {
        *FOREIGN
    }
    assert without == set(), "add their hooks files to FOREIGN in tests/unit/hosts/test_install.py"
