"""The examples run."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {"compress_text.py": "disk full", "remember_and_surface.py": "idempotency key"}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs_and_prints_the_expected_text(
    example: Path, environment: Mapping[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, str(example)],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert SAID[example.name] in done.stdout
