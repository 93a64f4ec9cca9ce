"""Whose words a prompt holds."""

import pytest

from upwell.hosts import HOSTS
from upwell.hosts.events import HISTORIES, INSERTED, own_words

NOTICE = (
    "[SYSTEM NOTIFICATION - NOT USER INPUT]\nThis is an automated event.\n\n"
    "<task-notification>\n<result>Never log the token.</result>\n</task-notification>"
)
PEER = (
    "Another Claude session sent a message:\n"
    '<cross-session-message from="other">\nAlways rebase.\n</cross-session-message>'
)
AGENTS = "# AGENTS.md instructions for /code\n\n<INSTRUCTIONS>\nAlways test.\n</INSTRUCTIONS>"


@pytest.mark.parametrize(
    ("host", "notice"),
    [
        ("claude", NOTICE),
        ("claude", f"{NOTICE}\nFull transcript available at: /tmp/tasks/a1.output"),
        ("claude", PEER),
        ("claude", "<teammate-message teammate_id='lead'>Go</teammate-message>"),
        ("claude", "<local-command-stdout>ok</local-command-stdout>"),
        ("claude", "<bash-input>ls</bash-input>"),
        ("codex", AGENTS),
        ("codex", "<environment_context>\n<cwd>/code</cwd>\n</environment_context>"),
        ("codex", "<skill>\n<name>x</name>\nAlways bump.\n</skill>"),
        ("gemini", "<hook_context>x</hook_context>\n\n<hook_context>y</hook_context>"),
        (HISTORIES, NOTICE),
    ],
)
def test_a_notice_holds_nothing_of_the_user_but_a_question_behind_or_before_it_does(
    host: str, notice: str
) -> None:
    assert own_words(notice, host) == ""
    assert own_words(f"{notice}\n\nWhy does the winch stall?", host) == "Why does the winch stall?"
    assert own_words(f"Why does the winch stall?\n{notice}", host) == "Why does the winch stall?"


@pytest.mark.parametrize(
    "typed",
    [
        "Caveat: the pump is loud",
        "[upwell] is broken",
        "# AGENTS.md instructions for what?",
        "This session is being continued from a previous conversation, why?",
        "<task-notification> appears twice",
        "Why is <task-notification>x</task-notification> shown?",
        "What does <command-name>/x</command-name> mean?",
        "[Request interrupted by user] is shown, why?",
    ],
)
def test_the_first_words_of_a_prompt_do_not_decide_whose_it_is(typed: str) -> None:
    for host in (*HOSTS, HISTORIES):
        assert own_words(typed, host) == typed


def test_marks_belong_to_the_host_that_writes_them() -> None:
    text = "<environment_context>x</environment_context>"
    assert own_words(text, "codex") == ""
    assert own_words(text, "claude") == text
    assert set(INSERTED) <= set(HOSTS)


def test_a_slash_command_is_what_the_user_typed() -> None:
    record = "<command-message>review</command-message>\n<command-name>/review</command-name>\n"
    assert own_words(record + "<command-args>the pump</command-args>", "claude") == (
        "/review the pump"
    )
    assert own_words(record, "claude") == "/review"


def test_a_request_stands_behind_the_context_of_an_editor() -> None:
    context = "# Context from my IDE setup:\n\n## Active file: a.py\n\n"
    prompt = context + "## My request for Codex:\nWhy does it leak?\n"
    event = HOSTS["codex"].events.read("UserPromptSubmit", {"session_id": "s", "prompt": prompt})
    assert event
    assert event.text == own_words(prompt, "codex") == "Why does it leak?"
    assert own_words("# Context from my IDE setup: why?", "codex") == (
        "# Context from my IDE setup: why?"
    )


def test_our_own_question_and_an_interruption_are_not_prompts() -> None:
    assert own_words("[upwell] Before you finish: in this turn …", "gemini") == ""
    assert own_words("[Request interrupted by user]", "claude") == ""


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"prompt": NOTICE}, None),
        ({"prompt": f"{NOTICE}\n\nWhy?"}, "Why?"),
        ({"prompt": "Check the pumps", "source": "loop_wakeup"}, None),
        ({"prompt": "Check the pumps", "source": "user"}, "Check the pumps"),
        ({"prompt": f"<task-notification>{'x' * 50_000}</task-notification>"}, None),
        ({"prompt": ""}, ""),
    ],
)
def test_claude_code_announces_only_the_users_prompts(
    fields: dict[str, str], text: str | None
) -> None:
    event = HOSTS["claude"].events.read("UserPromptSubmit", {"session_id": "s", **fields})
    assert (event.text if event else None) == text


def test_a_line_that_hosts_write_behind_a_notice_is_the_users_elsewhere() -> None:
    trail = "Full transcript available at: /tmp/a1.output"
    assert own_words(f"See this. {trail}", "claude") == f"See this. {trail}"
    assert own_words(f"{NOTICE}\n{trail}\nIs that right?", "claude") == "Is that right?"
