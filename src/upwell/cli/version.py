"""The version, with the commit that it was built from."""

import subprocess
from pathlib import Path

from upwell import __version__


def version_line() -> str:
    """For example `upwell 0.3.0 (1a2b3c4d5)`, without the parentheses if no commit is known."""
    commit = _checked_out() or _built_from()
    return f"upwell {__version__}" + (f" ({commit})" if commit else "")


def _built_from() -> str:
    """The commit that the build wrote into the package; empty if there is none."""
    try:
        return (Path(__file__).parents[1] / "COMMIT").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _checked_out() -> str:
    """The commit of the checkout from which upwell runs; empty if it is installed."""
    checkout = Path(__file__).parents[3]
    if not (checkout / ".git").exists() or not (checkout / "src" / "upwell").is_dir():
        return ""
    try:
        result = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "--short=9", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
