"""A home that cannot be written: reading goes on, and writing begins again when it can."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from upwell.app import Settings, build
from upwell.ground.errors import StoreUnwritable
from upwell.ground.sqlite import database as databases
from upwell.ground.sqlite import file as files
from upwell.ground.types.cue import Cue, Surfacing

FACT = "the settlement job in src/billing/settle.py runs before midnight"


@contextmanager
def unwritable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every attempt to open a file for writing fails, as on a full or read-only disk."""

    def refused(plan: files.OpenPlan) -> object:
        if plan.is_read_only:
            return files.prepare_read_only(plan)
        raise StoreUnwritable(f"cannot write {plan.path}", hint="free some disk space")

    with monkeypatch.context() as patched:
        patched.setattr(databases, "prepare", refused)
        yield


async def filled(home: Path) -> None:
    app = await build(Settings(home=home, environment={}))
    await app.memory.add_many([{"id": "m1", "text": FACT}])
    await app.aclose()


async def test_search_and_surfacing_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(tmp_path / "home")
    with unwritable(monkeypatch):
        app = await build(Settings(home=tmp_path / "home", environment={}))
        assert [hit.memory.text for hit in await app.memory.search("settlement")] == [FACT]
        cue = Cue(door="ask", text="when does the settlement job run?", session="s")
        assert isinstance(await app.surfacer.surface(cue), Surfacing)
        with pytest.raises(StoreUnwritable):
            await app.memory.add_many([{"text": "another"}])
        ping = await app.memory.store.ping()
        assert not ping.ok
        assert "cannot write" in ping.detail
        await app.aclose()


async def test_writing_begins_again_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path / "home")
    with unwritable(monkeypatch):
        app = await build(Settings(home=tmp_path / "home", environment={}))
    await app.memory.add_many([{"id": "m2", "text": "written again"}])
    assert await app.memory.get("m2") is not None
    assert (await app.memory.store.ping()).ok
    await app.aclose()


async def test_the_verbs_that_read_answer_in_a_read_only_folder(tmp_path: Path) -> None:
    """Another mount namespace, if the system allows one, makes the home read-only."""
    home = tmp_path / "home"
    await filled(home)
    run = f"{sys.executable} -m upwell"
    script = (
        f"mount --bind {home} {home} && mount -o remount,bind,ro {home} || exit 77; "
        f"{run} recall settlement && {run} context 'when does the settlement job run?' "
        f"&& {run} explain && {run} stats && ! {run} remember another"
    )
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", script],
        env={
            "UPWELL_HOME": str(home),
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("mount namespaces are not allowed here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(FACT) >= 2
