"""`upwell config check`, and a background chore that fails."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from upwell.app import Settings, build
from upwell.app.running import housekeeping
from upwell.cli.main import main
from upwell.ground.trace import LOG


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


def test_config_check_prints_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / "config.toml"
    file.write_text("[surface]\nmin_score = 0.4\nmax_cuont = 3\n")
    assert main(["config", "check", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (mistake,) = found.pop("mistakes")
    assert found == {"ok": False, "file": str(file), "settings": 1, "remark": ""}
    assert "surface.max_cuont" in mistake["message"]
    assert "max_count" in mistake["hint"]
    file.write_text("[agent]\nmodel = 'foo-9'\n")
    assert main(["config", "check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["mistakes"]) == (True, [])
    assert "no window is known for 'foo-9'" in found["remark"]


async def test_a_chore_that_fails_is_logged_and_ends_nothing_else(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug in hot reload")

    monkeypatch.setattr("upwell.app.running.follow_config", broken)
    app = await build(Settings(home=home, environment={}))
    monkeypatch.setattr(LOG, "propagate", True)  # the app logs to its own file only
    with caplog.at_level(logging.ERROR):
        async with housekeeping(app, app.gateway()):
            await asyncio.sleep(0.05)
            assert "housekeeping: a background task failed" in caplog.text
