"""Store memories and surface those that bear on a tool call: the Python side of upwell.

python examples/remember_and_surface.py
"""

import asyncio
import tempfile
from pathlib import Path

from upwell import Cue, Skip
from upwell.app import Settings, build

MEMORIES = [
    {
        "text": "Retries of one charge reuse its idempotency key, or the customer pays twice.",
        "namespace": "decisions",
        "paths": ["src/payments.py"],
    },
    {"text": "The office plants are watered on Mondays."},
]
CUES = [
    Cue(door="tool", tool="Read", args={"file_path": "src/payments.py"}, session="example"),
    Cue(door="prompt", text="why was a customer charged twice by a retry?", session="other"),
    Cue(door="prompt", text="thanks, that works", session="example"),
]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        app = await build(Settings(home=Path(folder)))
        try:
            await app.memory.add_many(MEMORIES)
            for cue in CUES:
                outcome = await app.surfacer.surface(cue)
                print(f"\n> {cue.text or cue.args}")
                if isinstance(outcome, Skip):
                    print(f"silent: {outcome.reason} {outcome.detail}")
                else:
                    print(outcome.text)
        finally:
            await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
