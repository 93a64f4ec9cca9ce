"""What an agent's hook runs. Answers neutrally: exit 0 and nothing to add, whatever comes in.

It reads the event so that the host's pipe never breaks, but not for longer than its deadline.
"""

import os
import select
import sys
import time
from collections.abc import Sequence

DEADLINE_SECONDS = 0.2
_MAX_BYTES = 10_000_000


def main(args: Sequence[str]) -> int:
    """Take the event from stdin and answer `{}`."""
    _drain(time.monotonic() + DEADLINE_SECONDS)
    try:
        os.write(1, b"{}\n")
    except OSError:
        return 0
    return 0


def _drain(until: float) -> None:
    taken = 0
    try:
        while taken < _MAX_BYTES and (left := until - time.monotonic()) > 0:
            if not select.select([0], [], [], left)[0]:
                return
            chunk = os.read(0, 65536)
            if not chunk:
                return
            taken += len(chunk)
    except (OSError, ValueError):
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
