"""The drill: one script that every agent plays, and the events that its transcript must yield.

The scripted model makes the calls (`parts.py` has them in each agent's words). The user asks
`QUESTION` and then resumes the session with `CORRECTION`. All other text is somebody else's: the
agent's preambles, the project's instructions, a skill, and what upwell's hooks add.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.live.talk import DONE
from upwell.episodes.events import Kind, SessionEvent
from upwell.replay.transcripts import transcripts_at
from upwell.replay.transcripts.base import ReadTally

QUESTION = "Service the lens rotation of the lighthouse: when?"
CORRECTION = "No, never edit files in src/generated/"
FORKED = "And now count the ladders"
"""The prompt of a fork, where the agent can fork a session."""
DELEGATED = "Measure the gauge of the harbour"
"""The agent's prompt to its sub-agent, which is not the user's."""
INSTRUCTIONS = "Always paint the hull before the mast."
"""A sentence of the project's instructions and of its skill, which is not the user's either."""
FAILING = "python3 src/check_tide.py 7"
PRINTED = "TideTableMissing: no tide table for harbour 7"
WORKING = "ls src"
LATER = "git status --short"
PARTS = ("claude", "codex", "codex-code", "copilot", "gemini", "opencode")
"""The parts: every agent, and Codex a second time with a model of the code mode."""
Steps = Mapping[str, Sequence["Step"]]


@dataclass(frozen=True)
class Step:
    """What happened, and what the event about it must say.

    For a tool, `text` occurs in the result, and the event's arguments include `args`. For all other
    kinds, `text` is the full text.
    """

    kind: Kind
    text: str = ""
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False

    def seen_in(self, event: SessionEvent) -> "Step":
        """The event, reduced to what this step is about. Equal to this step if the event is
        right."""
        whole = event.out if event.kind is Kind.TOOL else event.text
        is_tool = self.kind is event.kind is Kind.TOOL
        args = {name: event.args.get(name) for name in self.args}
        text = self.text if is_tool and self.text in whole else whole
        return Step(event.kind, text, event.tool, args, event.failed)


def prompt(text: str) -> Step:
    return Step(Kind.PROMPT, text)


def tool(name: str, args: Mapping[str, Any], out: str = "", *, failed: bool = False) -> Step:
    return Step(Kind.TOOL, out, name, args, failed)


def sessions_at(folder: Path) -> tuple[dict[str, list[SessionEvent]], ReadTally]:
    """The events of every session in a folder's transcripts, by the session's name, and what the
    readers made of all records."""
    sessions: dict[str, list[SessionEvent]] = {}
    tally = ReadTally()
    for transcript in transcripts_at([folder]):
        for event in transcript.events(tally=tally):
            sessions.setdefault(event.session, []).append(event)
    return sessions, tally


def expected(part: str, root: str) -> list[Step]:
    """The events of a part's transcript, in a project at `root`."""
    steps = {**_steps(root), **_DIFFERENCES[part](root)}
    return [step for group in steps.values() for step in group]


def seen(events: Iterable[SessionEvent], steps: Sequence[Step]) -> list[Step]:
    """The events of a session as steps, to be compared with `steps`."""
    shown = [event for event in events if event.kind not in (Kind.START, Kind.END)]
    nothing = Step(Kind.END)
    return [
        (steps[i] if i < len(steps) else nothing).seen_in(event) for i, event in enumerate(shown)
    ]


def _steps(root: str) -> Steps:
    gauge, tides = f"{root}/src/gauge.py", f"{root}/src/generated/tides.py"
    said = Step(Kind.SAY, DONE)
    return {
        "question": [prompt(QUESTION)],
        "failing": [tool("Bash", {"command": FAILING}, PRINTED, failed=True)],
        "working": [tool("Bash", {"command": WORKING}, "check_tide.py")],
        "read": [tool("Read", {"file_path": gauge}, "def gauge")],
        "edit": [tool("Edit", {"file_path": gauge})],
        "write": [tool("Write", {"file_path": tides})],
        "search": [tool("Grep", {"pattern": "def gauge"}, "gauge.py")],
        "mcp": [tool("mcp__up__say", {"text": "ahoy"}, "ahoy")],
        "mcp_failing": [tool("mcp__up__fail", {}, "it did not work", failed=True)],
        "delegated": [tool("task", {"prompt": DELEGATED}, DONE)],
        "skill": [tool("skill", {})],
        "said": [said],
        "correction": [prompt(CORRECTION)],
        "later": [tool("Bash", {"command": LATER}, "AGENTS.md")],
        "said_later": [said],
    }


def _claude(root: str) -> Steps:
    """MCP tools have to be searched for first."""
    found = tool("ToolSearch", {"query": "select:mcp__up__say,mcp__up__fail"})
    return {
        "mcp": [found, *_steps(root)["mcp"]],
        "delegated": [tool("Agent", {"prompt": DELEGATED}, DONE)],
        "skill": [tool("Skill", {"skill": "tides"})],
    }


def _codex_code(root: str) -> Steps:
    """Files are read and searched by commands, and written by patches. A skill is loaded by its
    name in the prompt."""
    grep = "grep -rn 'def gauge' src"
    return {
        "question": [prompt(f"$tides {QUESTION}")],
        "read": [tool("Bash", {"command": "cat src/gauge.py"}, "def gauge")],
        "write": [tool("Edit", {"file_path": f"{root}/src/generated/tides.py"})],
        "search": [tool("Bash", {"command": grep}, "gauge.py")],
        "delegated": [],
        "skill": [],
    }


def _codex(root: str) -> Steps:
    spawned = tool("spawn_agent", {"message": DELEGATED}, "agent_id")
    return {**_codex_code(root), "delegated": [spawned, tool("wait_agent", {}, DONE)]}


def _copilot(root: str) -> Steps:
    return {"write": [tool("Edit", {"file_path": f"{root}/src/generated/tides.py"})]}


def _gemini(root: str) -> Steps:
    """The prompt refers to a file, whose content the agent adds."""
    return {
        "question": [prompt(f"{QUESTION} @src/gauge.py")],
        "delegated": [tool("invoke_agent", {"prompt": DELEGATED}, DONE)],
        "skill": [tool("activate_skill", {"name": "tides"}, INSTRUCTIONS)],
    }


def _opencode(root: str) -> Steps:
    """The names of MCP tools do not tell where the server's name ends."""
    return {
        "mcp": [tool("up_say", {"text": "ahoy"}, "ahoy")],
        "mcp_failing": [tool("up_fail", {}, "it did not work", failed=True)],
    }


_DIFFERENCES: Mapping[str, Callable[[str], Steps]] = {
    "claude": _claude,
    "codex": _codex,
    "codex-code": _codex_code,
    "copilot": _copilot,
    "gemini": _gemini,
    "opencode": _opencode,
}
