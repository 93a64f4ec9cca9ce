"""Generates the examples in `docs/compression.md`, made by the code itself.

Run `make examples` to write them into that page. The tests run one example of each strategy; the
page shows those in `SHOWN`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from upwell.compress.base import Tools
from upwell.compress.compressor import Compressor
from upwell.ground.clock import Deadline
from upwell.ground.types.compression import Budget, Compressed, Passage

PAGE = Path(__file__).parents[1] / "docs" / "compression.md"
_FIRST = "### `auto`"
SHOWN = ("auto", "schema_pruning", "selective")


@dataclass(frozen=True, slots=True)
class Example:
    """A passage and a budget that show what a strategy does."""

    strategy: str
    text: str
    max_chars: int
    query: str = ""
    key: str = ""


class _Model:
    """Stands in for a language model in the example of `llm_summary`."""

    def chat(self, prompt: str, deadline: Deadline) -> str:
        return "deploy 41 failed: db-2 refused connections (ECONNREFUSED) at 10:04."


_ISSUES = json.dumps(
    [
        {
            "number": 40 + n,
            "title": f"{what} on {where} {n}",
            "state": "closed" if n % 3 else "open",
            "user": {"login": who, "url": f"https://example.org/users/{who}"},
        }
        for n, (what, where, who) in enumerate(
            [
                ("Crash", "start", "ada"), ("Slow search", "Linux", "ben"),
                ("Wrong total", "reports", "cleo"), ("Lost cursor", "resume", "dov"),
                ("Typo", "help page", "eva"), ("Timeout", "upload", "fay"),
            ] * 4
        )
    ]
)  # fmt: skip
_SETTINGS = json.dumps(
    {
        "service": {"name": "harbor", "port": 8080, "tls": {"enabled": True, "min": "1.2"}},
        "store": {"path": "/var/lib/harbor", "sync": "full", "comment": "kept small " * 12},
        "limits": {"rate": 1.10, "burst": 40, "note": "see the runbook " * 10},
        "owner": {"team": "quay", "mail": "quay@example.org"},
    }
)
_GUIDE = "\n".join(
    f"## {title}\n\n{first}\n\n" + f"{rest} " * 9 + "\n"
    for title, first, rest in (
        ("Install", "Run the installer once.", "It asks for a folder and copies files there."),
        ("Configure", "Set the port in harbor.toml.", "Other keys have sensible defaults."),
        ("Back up", "Copy the ledger every night.", "Old copies are removed after a week."),
        ("Troubleshoot", "Read the log first.", "Most trouble is a port that is in use."),
    )
)
_LOG = "\n".join(
    f"2026-03-01 10:{n:02d}:00 INFO db-{n % 3} ping {n * 7 % 50} ms" for n in range(40)
).replace("db-2 ping 14 ms", "db-2 ERROR connection refused", 1)
_API = "\n".join(
    f"## {name}\n\n{verb} /v1/{name.lower()}\n\n" + "A longer explanation of the call. " * 8
    for name, verb in (("Ships", "GET"), ("Berths", "GET"), ("Bookings", "POST"))
)

EXAMPLES = (
    Example("auto", _LOG, 260, query="why was the connection refused?"),
    Example("none", "Short enough already.", 100),
    Example("truncate", _LOG, 260),
    Example("hybrid", _GUIDE, 420, query="which port?"),
    Example("selective", _GUIDE, 900, key="4f1c"),
    Example("progressive", _GUIDE, 260, key="4f1c"),
    Example("extract_fields", _SETTINGS, 330),
    Example("schema_pruning", _ISSUES, 420, query="who reported the lost cursor on resume 9?"),
    Example("skeleton", _API, 300),
    Example("llm_summary", _LOG, 260),
)


def run(example: Example) -> Compressed:
    """The result of the strategy for its example."""
    passage = Passage(text=example.text, query=example.query, key=example.key)
    budget = Budget(hard_chars=example.max_chars)
    return Compressor(tools=Tools(chat=_Model())).compress(passage, budget, example.strategy)


def page() -> str:
    """The examples as Markdown, in the order of `SHOWN`."""
    examples = {example.strategy: example for example in EXAMPLES}
    parts = []
    for example in map(examples.__getitem__, SHOWN):
        result = run(example)
        question = f", asked “{example.query}”" if example.query else ""
        choice = f" (picked `{result.strategy}`)" if example.strategy == "auto" else ""
        parts.append(
            f"### `{example.strategy}`{choice}\n\n"
            f"{result.before:,} characters, with a limit of {example.max_chars:,}{question}. "
            f"The result has {result.after:,} characters, {result.tokens:,} tokens"
            f"{', and nothing is lost' if result.lossless else ''}.\n\n"
            f"````text\n{result.text.rstrip()}\n````\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index(_FIRST)] + page(), encoding="utf-8")
