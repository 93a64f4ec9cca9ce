"""A server that speaks both eras over HTTP is spoken to in the era of each client."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.doors.agent import Agent
from tests.doors.conformance.run import REFERENCE, free_port, program
from tests.doors.conftest import write_config
from tests.doors.peer import text_of

ASKS = "ref__test_input_required_result_elicitation"
LIMITS = {"connect_timeout_seconds": 20.0}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the official SDK."""
    port = free_port()
    log = tmp_path_factory.mktemp("reference") / "log"
    with program([*REFERENCE, "--port", str(port)], port, os.environ, log):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
def served(reference: str, home: Path) -> list[str]:
    write_config(home, {"ref": {"url": reference}}, gateway=LIMITS)
    return [sys.executable, "-m", "upwell", "serve"]


def test_a_client_of_the_modern_era_sees_the_question_as_the_server_put_it(
    served: list[str], environment: Mapping[str, str]
) -> None:
    with Agent(served, env=environment, modern=True) as agent:
        agent.wait_for_tools(ASKS)
        asked = agent.result("tools/call", {"name": ASKS, "arguments": {}})
        assert asked["resultType"] == "input_required"
        assert list(asked["inputRequests"]) == ["user_name"]
        fields = {"user_name": {"action": "accept", "content": {"name": "Ada"}}}
        again = {"name": ASKS, "arguments": {}, "inputResponses": fields}
        assert "Ada" in text_of(agent.result("tools/call", again))


def test_a_client_of_the_handshake_era_is_asked_by_a_request(
    served: list[str], environment: Mapping[str, str]
) -> None:
    with Agent(served, env=environment) as agent:
        agent.hello()
        agent.wait_for_tools(ASKS)
        assert "Ada" in text_of(agent.call(ASKS))
        assert [request["method"] for request in agent.requests] == ["elicitation/create"]
