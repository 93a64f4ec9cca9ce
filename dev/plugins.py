"""Generates the plugins in `plugins/`, and the lists of plugins (marketplaces) that agents read.

`python dev/plugins.py` writes all files that `files()` returns; a test compares them. `run` and the
skills are written by hand in `plugins/upwell`. A plugin in a folder of its own needs copies of
them, which `copies()` makes.

Sources: the documentation of plugins of Claude Code, Copilot CLI and Codex, and what these agents
accepted in `tests/live/test_plugins.py`. None of them reads another's manifest here: each takes the
first of its own list of places.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell import __version__
from upwell.hosts import HOSTS
from upwell.hosts.events import EventKind
from upwell.hosts.installation import Installation

ROOT = Path(__file__).parents[1]
SHARED = ROOT / "plugins" / "upwell"
ABOUT = (
    "Memory for coding agents: puts what earlier sessions found out in front of the agent when it "
    "matters, and lets it read on where a tool's result was shortened. Needs uv or pipx."
)
START_SECONDS = 60
"""The time limit at the start of a session, where `run` waits while upwell is installed."""
_RUN = "@RUN@"


class SharedPlugin(Struct, frozen=True, kw_only=True):
    """A host whose plugin is the folder `plugins/upwell`.

    - `manifest` is relative to that folder, and `marketplace` to the repository.
    - `root` is the variable that the host replaces by the folder.
    - `server` is the MCP server as the host's manifest configures it.
    - `source` is the folder as the host's marketplace names it.
    """

    host: str
    manifest: str
    marketplace: str
    root: str
    server: Mapping[str, Any]
    source: Any = "./plugins/upwell"


def _server(root: str) -> dict[str, Any]:
    return {"command": "sh", "args": [f"${{{root}}}/run", "serve"]}


SHARING = (
    SharedPlugin(
        host="claude",
        manifest=".claude-plugin/plugin.json",
        marketplace=".claude-plugin/marketplace.json",
        root="CLAUDE_PLUGIN_ROOT",
        server=_server("CLAUDE_PLUGIN_ROOT"),
    ),
    SharedPlugin(
        host="copilot",
        manifest=".github/plugin/plugin.json",
        marketplace=".github/plugin/marketplace.json",
        root="PLUGIN_ROOT",
        server=_server("PLUGIN_ROOT"),
    ),
    # Codex replaces no variable in a server's arguments, but runs it in the folder that `cwd`
    # names relative to the plugin, and passes on only the variables that are listed.
    SharedPlugin(
        host="codex",
        manifest=".codex-plugin/plugin.json",
        marketplace=".agents/plugins/marketplace.json",
        root="PLUGIN_ROOT",
        server={
            "command": "sh",
            "args": ["run", "serve"],
            "cwd": ".",
            "env_vars": ["UPWELL_HOME", "XDG_DATA_HOME"],
            "startup_timeout_sec": 120,
        },
        source={"source": "local", "path": "./plugins/upwell"},
    ),
)


def hooks(host: str, program: str) -> Any:
    """The hooks that an installation writes for this host, with those for guards. `program` is the
    path of `run`, in which the host replaces variables."""
    file, kinds = HOSTS[host].hooks, HOSTS[host].events.kinds
    own = Installation(user_folder=Path(), environment={}, command=(_RUN,), guards=True)
    hooks = json.loads(file.with_ours("", own))
    for event, entries in hooks["hooks"].items():
        is_start = kinds[event] is EventKind.SESSION and event.lower() == "sessionstart"
        for handler in _handlers(entries):
            _run_by(handler, program, "start" if is_start else "hook")
            for key in handler.keys() & {"timeout", "timeoutSec"} if is_start else ():
                handler[key] = START_SECONDS
    return hooks


def _handlers(entries: Any) -> Iterator[dict[str, Any]]:
    for entry in entries:
        yield from entry.get("hooks", [entry])


def _run_by(handler: dict[str, Any], program: str, verb: str) -> None:
    if "exec" in handler:
        handler.update({"exec": "sh", "args": [program, verb, *handler["args"]]})
    else:
        handler["command"] = handler["command"].replace(_RUN, f'sh "{program}" {verb}', 1)


def files() -> dict[str, str]:
    """The content of every generated file, keyed by its path in the repository."""
    script = (SHARED / "run").read_text()
    texts = {
        "plugins/upwell/run": re.sub(r"(?m)^version=.*$", f"version={__version__}", script, count=1)
    }
    for plugin in SHARING:
        manifest = {
            "name": "upwell",
            "version": __version__,
            "description": ABOUT,
            "author": {"name": "upwell"},
            "license": "Apache-2.0",
            "keywords": ["memory", "context", "mcp"],
            "hooks": f"./hooks/{plugin.host}.json",
            "mcpServers": {"upwell": plugin.server},
        }
        listed = {"name": "upwell", "source": plugin.source, "description": ABOUT}
        marketplace = {
            "name": "upwell",
            "owner": {"name": "upwell"},
            "metadata": {"description": ABOUT},
            "plugins": [listed],
        }
        if plugin.host == "codex":
            policy = {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}
            listed |= {"policy": policy, "category": "Productivity"}
            marketplace = {
                "name": "upwell",
                "interface": {"displayName": "upwell"},
                "plugins": [listed],
            }
        texts[plugin.marketplace] = _dumped(marketplace)
        texts[f"plugins/upwell/{plugin.manifest}"] = _dumped(manifest)
        texts[f"plugins/upwell/hooks/{plugin.host}.json"] = _dumped(
            hooks(plugin.host, f"${{{plugin.root}}}/run")
        )
    return texts


def copies(folder: str) -> dict[str, str]:
    """The files of `plugins/upwell` that the plugin in `folder` needs too, at their new paths."""
    shared = {"run": files()["plugins/upwell/run"]}
    for skill in sorted(SHARED.glob("skills/*/SKILL.md")):
        shared[str(skill.relative_to(SHARED))] = skill.read_text()
    return {f"{folder}/{name}": text for name, text in shared.items()}


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def main() -> None:
    for name, text in files().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.name == "run":
            path.chmod(0o755)


if __name__ == "__main__":
    main()
