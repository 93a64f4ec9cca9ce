"""A build hook that puts the current commit into the package, for `upwell --version`."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILE = "upwell/COMMIT"


class CommitHook(BuildHookInterface):
    """Add `upwell/COMMIT` to a wheel or an sdist. A wheel built from an sdist keeps the file of the
    sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        if not (root / ".git").exists():
            build_data["artifacts"].append(f"src/{FILE}")
            return
        revision = subprocess.run(
            ["git", "rev-parse", "--short=9", "HEAD"], cwd=root, capture_output=True, text=True
        )
        if revision.returncode == 0:
            self.folder = tempfile.TemporaryDirectory()
            file = Path(self.folder.name) / "COMMIT"
            file.write_text(revision.stdout, encoding="ascii")
            place = FILE if self.target_name == "wheel" else f"src/{FILE}"
            build_data["force_include"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if folder := getattr(self, "folder", None):
            folder.cleanup()
