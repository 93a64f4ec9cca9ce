"""Questions of the command line to a home."""

from pathlib import Path

import pytest

from upwell.cli.main import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UPWELL_HOME", str(tmp_path))
    return tmp_path


def test_config_check_reports_every_mistake_on_a_line_of_its_own(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.toml").write_text(
        "[surface]\nmin_scor = 1\n[compress]\nstrategy = 'fast'\n[ltm]\ntransport = 'sse'\n"
    )
    assert main(["config", "check"]) == 1
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert len(lines) == 3
    for line, part in zip(lines, ("min_score", "compress.strategy", "ltm.url"), strict=True):
        assert line.startswith("upwell: ")
        assert part in line


def test_config_check_counts_valid_settings(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text("[surface]\nmin_score = 0.4\n")
    assert main(["config", "check"]) == 0
    assert capsys.readouterr().out == f"{home / 'config.toml'}: 1 setting, all valid\n"
