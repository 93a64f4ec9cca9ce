"""A release: its checksums can be verified, and every file names the same version."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from upwell import __version__

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SIGNER = "releases@upwell"


def checksums(folder: Path, **variables: str) -> str:
    """Run dev/checksums, and return its output."""
    clean = {name: value for name, value in os.environ.items() if name != "UPWELL_RELEASE_KEY"}
    done = subprocess.run(
        [ROOT / "dev/checksums", folder],
        env={**clean, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def verified(folder: Path, signers: Path) -> bool:
    """What CONTRIBUTING.md tells a user to run."""
    sums = (folder / "SHA256SUMS").read_bytes()
    signature = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", SIGNER, "-n", "upwell"]
    signed = subprocess.run(
        [*signature, "-s", folder / "SHA256SUMS.sig"], input=sums, capture_output=True
    )
    intact = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True
    )
    return (signed.returncode, intact.returncode) == (0, 0)


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "upwell-1.whl").write_bytes(b"wheel")
    (folder / "upwell-1.tar.gz").write_bytes(b"sdist")
    return folder


def key_in(folder: Path, name: str) -> Path:
    """A key that is thrown away."""
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return key


def test_a_signed_release_is_verified_and_a_changed_one_is_not(dist: Path, tmp_path: Path) -> None:
    key = key_in(tmp_path, "key")
    assert checksums(dist, UPWELL_RELEASE_KEY=str(key)) == ""
    signers = tmp_path / "signers"
    signers.write_text(f"{SIGNER} {key.with_suffix('.pub').read_text()}")
    assert verified(dist, signers)
    other = key_in(tmp_path, "other")
    strangers = tmp_path / "strangers"
    strangers.write_text(f"{SIGNER} {other.with_suffix('.pub').read_text()}")
    assert not verified(dist, strangers)
    (dist / "upwell-1.whl").write_bytes(b"whale")
    assert not verified(dist, signers)
    checksums(dist)
    assert not (dist / "SHA256SUMS.sig").exists()


def test_a_release_without_a_key_says_so(dist: Path) -> None:
    assert checksums(dist).startswith("SHA256SUMS is not signed: set UPWELL_RELEASE_KEY")
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["upwell-1.tar.gz", "upwell-1.whl"]


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("src/upwell/__init__.py", r'^__version__ = "(.*)"$'),
        ("uv.lock", r'^name = "upwell"\nversion = "(.*)"$'),
        ("deploy/Containerfile", r"upwell:(\S+)"),
        ("deploy/compose.yaml", r"image: upwell:(\S+)"),
        ("deploy/kubernetes/upwell.yaml", r"image: upwell:(\S+)"),
        ("plugins/upwell/run", r"^version=(.*)$"),
        ("plugins/opencode/run", r"^version=(.*)$"),
        ("plugins/opencode/package.json", r'^  "version": "(.*)"'),
        ("gemini-extension.json", r'^  "version": "(.*)"'),
        ("server.json", r'^  "version": "(.*)"'),
    ],
)
def test_every_file_names_the_version_of_pyproject(path: str, pattern: str) -> None:
    version = PYPROJECT["project"]["version"]
    assert version == __version__
    assert re.findall(pattern, (ROOT / path).read_text(), re.MULTILINE) == [version]


def test_the_workflow_runs_make_release_with_pinned_actions() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert "make release" in [step.get("run") for step in steps]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", action) for action in used)
    writers = [name for name, job in workflow["jobs"].items() if "write" in str(job["permissions"])]
    assert workflow["permissions"] == {"contents": "read"}
    assert writers == ["build", "pypi", "npm", "github"]
    assert workflow["jobs"]["github"]["permissions"] == {"contents": "write"}
