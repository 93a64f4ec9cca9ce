"""A stand-in for the program `qmd`, put where a shell would find it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ROOT

FAKE = ROOT / "tests" / "unit" / "memory" / "external" / "fake_qmd.py"


def qmd_env(folder: Path, notes: Path) -> Mapping[str, str]:
    """The variables with which upwell searches `notes` with the stand-in, which is put below
    `folder`."""
    programs = folder / "programs"
    programs.mkdir()
    script = programs / "qmd"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    script.chmod(0o755)
    return {
        "UPWELL_MEMORY__BACKEND": "qmd",
        "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
        "FAKE_QMD_ROOT": str(notes),
    }
