"""`upwell demo` shows the main job on this machine as it is: no network, no keys, no traces."""

import time
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import Upwell

LIMIT_SECONDS = 20


def test_the_demo_runs_and_cleans_up(
    upwell: Upwell, environment: Mapping[str, str], home: Path, tmp_path: Path
) -> None:
    began = time.monotonic()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = upwell("demo", env={"TMPDIR": str(scratch)})
    assert done.code == 0, done.err
    assert time.monotonic() - began < LIMIT_SECONDS
    assert "tokens" in done.out
    assert "upwell" in done.out
    assert "\x1b[" not in done.out
    assert list(scratch.iterdir()) == []
    assert not home.exists()
    assert list(Path(environment["HOME"]).iterdir()) == []


def test_the_demo_shows_surfaced_memories_and_silences(upwell: Upwell) -> None:
    out = upwell("demo").out.lower()
    for word in ("memory", "key", "read_more", "before", "after"):
        assert word in out
    assert "idempotency_key_reused" in out
    assert out.count("byte for byte") == 2
    assert out.count("the same bytes") == 4
