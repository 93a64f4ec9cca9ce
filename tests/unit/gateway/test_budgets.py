"""The default budget of a call by the kind of its tool."""

import pytest

from upwell.compress.options import CompressOptions
from upwell.config import load
from upwell.gateway.calls.results import ToolKind, default_tokens
from upwell.gateway.calls.results import kind_of_tool as kind_of
from upwell.ground.context_windows import ResultTokens
from upwell.ground.types.rpc import ToolCall


def call(tool: str, **args: object) -> ToolCall:
    return ToolCall(server="s", tool=tool, params=b"{}", args=args)


KINDS = [
    (call("read_text_file", path="a.py"), ToolKind.READ),
    (call("Read", file_path="a.py"), ToolKind.READ),
    (call("get_file_contents", path="a.py"), ToolKind.READ),
    (call("read_graph"), ToolKind.OTHER),
    (call("Bash", command="make"), ToolKind.SHELL),
    (call("run_tests", command="make test"), ToolKind.SHELL),
    (call("search_code", query="x"), ToolKind.SEARCH),
    (call("list_directory", path="."), ToolKind.SEARCH),
    (call("browser_snapshot"), ToolKind.PAGE),
    (call("WebFetch", url="https://example.org"), ToolKind.PAGE),
    (call("get_issue", number=4), ToolKind.OTHER),
]


@pytest.mark.parametrize(("asked", "kind"), KINDS)
def test_the_kind_of_a_tool(asked: ToolCall, kind: ToolKind) -> None:
    assert kind_of(asked) == kind


def test_files_are_delivered_whole_up_to_their_own_budget() -> None:
    read = call("read_file", path="a")
    assert default_tokens(read, CompressOptions(), ResultTokens()) == 10_000
    assert default_tokens(read, CompressOptions(), ResultTokens(4_000, 500)) == 4_000


def test_a_file_takes_at_most_a_quarter_of_a_small_window(tmp_path) -> None:
    asked = call("read_file", path="a")
    budgets = []
    for flags in (
        {"agent.context_window": 8_192},
        {"agent.context_window": 200_000},
        {},
    ):
        config = load(tmp_path, flags, environment={})
        options = config.compress_for("s", "read_file")
        budgets.append(default_tokens(asked, options, config.result_tokens()))
    assert budgets == [2_048, 10_000, 10_000]


def test_a_profile_changes_the_budgets() -> None:
    shell = call("Bash", command="make")
    budgets = [
        default_tokens(shell, CompressOptions(profile=profile), ResultTokens())
        for profile in ("light", "balanced", "lean")
    ]
    assert budgets == [8_000, 2_000, 1_000]
