"""What upwell runs for one call, one event and one command stays small."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOUNDS = {
    "remember": (60, 400),
    "call": (52, 250),
    "event without a memory": (68, 345),
    "event with a memory": (80, 550),
    "wrapped call: wrapper": (6, 53),
    "wrapped call: daemon": (49, 230),
}
"""For each case of `dev/footprint.py`, at most this many files and functions, a tenth more than
when this was written. Raise a number only if what is new is worth it."""
ROW = re.compile(r"^(.+?) +(\d+) files +(\d+) functions", re.MULTILINE)


def test_few_files_and_functions_run() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "dev" / "footprint.py")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = ROW.findall(done.stdout)
    counts = {case: (int(files), int(functions)) for case, files, functions in rows}
    assert counts.keys() == BOUNDS.keys()
    excess = {
        case: found
        for case, found in counts.items()
        if found[0] > BOUNDS[case][0] or found[1] > BOUNDS[case][1]
    }
    assert excess == {}, "see `dev/footprint.py --files CASE`"
