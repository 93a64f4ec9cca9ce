"""Documented events of every host, through the real executable and a real daemon."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.hook_events import HOSTS
from tests.doors.hooked import House
from upwell.hosts import HOSTS as RECORDS

SESSION_KEYS = {"session_id", "conversation_id", "sessionId", "sessionID"}
"""Every host's name for the id of a session. The test of the start uses a session of its own,
because the memories that a start brings are not repeated later."""
TOPICS = {
    "claude": "harbour tide gauge calibration",
    "codex": "glacier moraine sampling",
    "gemini": "orchard grafting calendar",
    "cursor": "lighthouse lens rotation",
    "copilot": "quarry blasting schedule",
    "opencode": "vineyard frost sensors",
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("hooks"))
    files = [
        {
            "id": f"file-{host}",
            "text": f"The {host} billing client retries with the same idempotency key",
            "paths": [f"src/{host}_billing.py"],
        }
        for host in HOSTS
    ]
    prompts = [
        {"id": f"prompt-{host}", "text": f"The {topic} runs every Tuesday at 06:40 by cron"}
        for host, topic in TOPICS.items()
    ]
    others = [
        {"text": f"Unrelated note {number} about {word} and its {other}"}
        for number, word in enumerate("maps paint rivers ladders engines forms keys".split())
        for other in "colour weight owner".split()
    ]
    house.keep([*files, *prompts, *others])
    house.upwell("remember", "--pin", "Never commit to the main branch")
    house.start()
    yield house
    house.stop()


@pytest.mark.parametrize("host", HOSTS)
def test_a_session_begins_with_the_rules(house: House, host: str) -> None:
    case = HOSTS[host]
    event = case.session(str(house.project / host))
    begun = {key: "begun" if key in SESSION_KEYS else value for key, value in event.items()}
    answer = house.hook(host, *case.args("session"), event=begun)
    assert "Never commit to the main branch" in case.text(
        answer.json, case.words.get("session", "")
    )


@pytest.mark.parametrize("host", [host for host in HOSTS if HOSTS[host].prompt])
def test_a_prompt_gets_the_relevant_memory(house: House, host: str) -> None:
    case = HOSTS[host]
    assert case.prompt is not None
    assert host in TOPICS, f"add a topic of {host} to TOPICS"
    asked = case.prompt(str(house.project), f"When does the {TOPICS[host]} run?")
    answer = house.hook(host, *case.args("prompt"), event=asked)
    text = case.text(answer.json, case.words.get("prompt", ""))
    assert "Tuesday at 06:40" in text
    assert "Unrelated" not in text


@pytest.mark.parametrize("host", HOSTS)
def test_reading_a_file_brings_up_its_memory_once(house: House, host: str) -> None:
    case = HOSTS[host]
    read = case.tool(str(house.project), house.file(f"{host}_billing.py"))
    answer = house.hook(host, *case.args("tool"), event=read)
    text = case.text(answer.json, case.words.get("tool", ""))
    assert f"The {host} billing client retries" in text
    assert house.hook(host, *case.args("tool"), event=read).json == {}


@pytest.mark.parametrize("host", HOSTS)
def test_a_writing_tool_gets_nothing(house: House, host: str) -> None:
    case = HOSTS[host]
    file = house.file(f"{host}_billing.py")
    write = case.tool(str(house.project), file, next(iter(RECORDS[host].writers)))
    assert house.hook(host, *case.args("write"), event=write).json == {}


@pytest.mark.parametrize("host", HOSTS)
def test_a_greeting_and_an_unrelated_file_get_nothing(house: House, host: str) -> None:
    case = HOSTS[host]
    read = case.tool("/somewhere/else", "/somewhere/else/zebra.py")
    assert house.hook(host, *case.args("tool"), event=read).json == {}
    if case.prompt is not None:
        hello = case.prompt(str(house.project), "thanks!")
        assert house.hook(host, *case.args("prompt"), event=hello).json == {}


def test_tools_behind_the_gateway_are_left_to_the_gateway(house: House) -> None:
    event = HOSTS["claude"].tool(str(house.project), house.file("zebra_billing.py"))
    for name in ("mcp__upwell__fs__read_file", "mcp__upwell__upwell__memory_search"):
        assert house.hook("claude", event={**event, "tool_name": name}).json == {}


def test_a_tool_of_another_server_gets_its_memory(house: House) -> None:
    house.upwell("remember", "Ferry timetables come from the port API", "--path", "src/ferry.py")
    event = HOSTS["claude"].tool(str(house.project), house.file("ferry.py"))
    called = {**event, "tool_name": "mcp__fs__read_text", "tool_input": {"path": "src/ferry.py"}}
    assert "port API" in str(house.hook("claude", event=called).json)
    writing = {**called, "tool_name": "mcp__fs__write_file", "session_id": "other"}
    assert house.hook("claude", event=writing).json == {}


def test_one_event_under_two_hosts_names_is_answered_once(house: House) -> None:
    """Cursor and VS Code also run Claude Code's hooks."""
    cwd = str(house.project)
    first = house.hook("cursor", event=HOSTS["cursor"].session(cwd)).json
    assert first
    assert house.hook("claude", event=HOSTS["claude"].session(cwd)).json == {}


def test_hooks_of_others_stay_silent_under_copilot_cli_which_drops_their_output(
    house: House,
) -> None:
    prompt = HOSTS["claude"].prompt
    assert prompt is not None
    house.upwell("remember", "The capstan brake pads are changed every 300 hours")
    asked = prompt(str(house.project), "How often are the capstan brake pads changed?")
    runs_it = {"COPILOT_CLI": "1", "COPILOT_HOOK_DIR": "/home/ada/.copilot/hooks"}
    assert house.hook("claude", event=asked, env=runs_it).json == {}
    inside_its_shell = {"COPILOT_CLI": "1"}
    assert "300 hours" in str(house.hook("claude", event=asked, env=inside_its_shell).json)


@pytest.mark.parametrize("name", ["PreCompact", "Stop", "SessionEnd", "PreToolUse", "Notification"])
def test_other_events_get_the_neutral_answer(house: House, name: str) -> None:
    event = {"session_id": "8f14e45f", "cwd": str(house.project), "hook_event_name": name}
    assert house.hook("claude", event=event).json == {}


def test_hooks_and_the_command_line_decide_alike(house: House) -> None:
    house.keep([{"id": "ferry-rope", "text": "The mooring rope winch needs grease every 40 hours"}])
    asked = "How often does the mooring rope winch need grease?"
    shown = house.upwell("context", asked, "--door", "prompt", "--format", "json")
    assert '"found": 1' in shown or "ferry-rope" in shown
    event = HOSTS["claude"].prompt
    assert event is not None
    reply = house.hook("claude", event=event(str(house.project), asked)).json
    assert "every 40 hours" in str(reply)


def test_explain_gives_the_reason_for_speaking(house: House) -> None:
    house.keep([{"id": "bilge-alarm", "text": "The bilge alarm is tested every Monday at seven"}])
    prompt = HOSTS["claude"].prompt
    assert prompt is not None
    for asked in ("When is the bilge alarm tested?", "How do we paint the xylograph?"):
        event = {**prompt(str(house.project), asked), "session_id": "explained"}
        house.hook("claude", event=event)
    explained = house.upwell("explain", "-n", "200", "--json")
    assert "bilge-alarm" in explained
    assert "below_min_score" in explained or "no_candidates" in explained


def test_blocks_keep_their_limits_when_the_command_in_them_is_long(tmp_path: Path) -> None:
    house = House(tmp_path / ("far/" * 50))
    house.environment |= {"UPWELL_SURFACE__MAX_INJECTION_CHARS": "1800"}
    long = "The winch keeps its brake open until the drum has turned. "
    house.keep([{"text": f"{n} {long * 40}", "paths": ["src/winch.py"]} for n in range(5)])
    for number in range(20):
        house.upwell("remember", "--pin", f"Rule {number}: never turn the winch by hand alone")
    house.start()
    try:
        case = HOSTS["claude"]
        session = house.hook("claude", event=case.session(str(house.project))).json
        read = house.hook("claude", event=case.tool(str(house.project), house.file("winch.py")))
    finally:
        house.stop()
    opening = case.text(session, case.words.get("session", ""))
    memories = case.text(read.json, case.words.get("tool", ""))
    command = f"UPWELL_HOME={shlex.quote(str(house.home))} upwell read"
    assert command in opening
    assert command in memories
    assert 900 < len(opening.encode()) <= 1200
    assert 1600 < len(memories) <= 1800
    assert memories.count("\n- [") == 2
