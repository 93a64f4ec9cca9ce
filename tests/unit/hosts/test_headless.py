"""How agents are asked without a user."""

from pathlib import Path

import pytest

from upwell.ground.errors import LlmError
from upwell.hosts import HOSTS
from upwell.hosts.base import HeadlessQuestion


def test_gemini_is_not_asked_where_it_would_ignore_our_settings(tmp_path: Path) -> None:
    """It would then offer its tools to a model that reads an untrusted transcript."""
    gemini = HOSTS["gemini"].headless
    assert gemini is not None
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    folder = tmp_path / "open" / "headless"
    with pytest.raises(LlmError, match=f"no settings below {tmp_path}/open"):
        gemini.invoke(HeadlessQuestion(system="s", model="m", folder=folder, servers=()))
