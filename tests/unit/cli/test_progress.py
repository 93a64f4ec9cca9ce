"""The progress bar: on a terminal, after a second, and never in a pipe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.doors.terminal import typed

SCRIPT = """
import sys, time
from upwell.cli.output import progress
with progress("searching the harbour") as show:
    show(1, 2)
    time.sleep(float(sys.argv[1]))
print("done")
"""


@pytest.mark.parametrize(("seconds", "is_shown"), [("2.5", True), ("0", False)])
def test_only_long_work_has_a_bar(tmp_path: Path, seconds: str, is_shown: bool) -> None:
    command = ["env", "TERM=xterm", sys.executable, "-c", SCRIPT, seconds]
    environment = {"PATH": os.environ["PATH"], "FORCE_COLOR": "1"}
    shown = typed(command, (), environment, tmp_path)
    assert ("searching the harbour" in shown) == is_shown
    assert "done" in shown


def test_a_pipe_gets_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, "1.5"], capture_output=True, check=True)
    assert (done.stdout.decode().split(), done.stderr) == (["done"], b"")
