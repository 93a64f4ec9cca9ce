"""A past for a home: memories, sessions of an agent, and a long result."""

import asyncio
from pathlib import Path

from upwell.app import App
from upwell.capture.inbox import WHY_COMMIT, WHY_RULE, Proposal, inbox_at
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory
from upwell.ground.types.rpc import ToolCall

HOSTILE = (
    '"><script>window.hacked = 1; alert(1)</script><img src=x onerror="alert(2)">'
    '<a href="javascript:alert(3)">link</a><svg onload=alert(4)> \' {{ 7 * 7 }} \u202eevil'
)
MEMORIES = (
    "The payment gateway retries three times, then the order waits in `orders.stuck`.",
    "Releases are cut with `make release VERSION=x`; a tag by hand skips the changelog.",
    "The warehouse API answers in Asia/Seoul time, although its timestamps end in Z.",
    "The staging database is rebuilt every Monday at 04:00 UTC.",
    HOSTILE,
)
RULE = "Write British English in everything that customers read."
LOG = "\n".join(
    f"2026-03-{1 + n % 28:02} 12:00:{n % 60:02} worker {n % 7} stored order {n}"
    for n in range(4_000)
)


async def live(app: App, project: Path) -> None:
    """Let two sessions of an agent happen."""
    (project / ".git").mkdir(parents=True, exist_ok=True)
    await app.memory.add_many(
        Memory(text=text, project=str(project), namespace="decisions") for text in MEMORIES
    )
    await app.memory.add(Memory(text=RULE, project=str(project), pinned=True))
    inbox_at(app.config.home.inbox_file).propose(
        [
            Proposal(
                text="Never edit generated files under `api/gen`.",
                source="session:1", why=WHY_RULE, project=str(project),
            ),
            Proposal(
                text=f"Uploads are limited to 20 MB {HOSTILE}",
                source="git:3f2a1c0", why=WHY_COMMIT, project=str(project),
            ),
        ]
    )  # fmt: skip
    for session in ("0d5f7c1a-monday", "8b21e94f-tuesday"):
        await _work(app, project, session)
    call = ToolCall(
        server="claude", tool="Bash", params=b"{}", args={"command": "cat worker.log"},
        host="claude", session="8b21e94f-tuesday", cwd=str(project),
    )  # fmt: skip
    await shorten(app, call, LOG + HOSTILE)
    await app.cuts.flush()


async def shorten(app: App, call: ToolCall, text: str) -> None:
    """Shorten the result of a call. A result stays whole while the disk is busy."""
    for _ in range(50):
        if any(
            await app.fitter.fit_texts(call, [text], lambda key, has_lines: f"upwell read {key}")
        ):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the disk stays busy")


async def _work(app: App, project: Path, session: str) -> None:
    for cue in (
        Cue(door="session", text="startup"),
        Cue(door="prompt", text="Why do orders get stuck when the payment gateway fails?"),
        Cue(door="tool", tool="Read", args={"file_path": str(project / "src/payments.py")}),
        Cue(door="tool", tool="Bash", args={"command": "pytest -q tests/test_orders.py"}),
        Cue(door="prompt", text="Which time zone does the warehouse API answer in?"),
        Cue(door="prompt", text=f"thanks {HOSTILE}"),
        Cue(door="tool", tool="Grep", args={"pattern": HOSTILE, "path": HOSTILE}),
    ):
        await app.surfacer.surface(
            Cue(
                door=cue.door, text=cue.text, tool=cue.tool, args=cue.args,
                session=session, cwd=str(project), host="claude",
            )
        )  # fmt: skip
