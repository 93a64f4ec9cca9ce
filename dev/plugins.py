"""Generates the plugins in `plugins/`, and the lists of plugins (marketplaces) that agents read.

`python dev/plugins.py` writes all files that `files()` returns; a test compares them. `run` and the
skills are written by hand in `plugins/upwell`. Plugins that do not have them in their folder get
copies.

Sources: the documentation of plugins of Claude Code, Copilot CLI and Codex, and what these agents
accepted in `tests/live/test_plugins.py`. None of them reads another's manifest here: each takes the
first of its own list of places. For Cursor: the documentation and the schemas in the repository
cursor/plugins (2026-08); Cursor itself was not run. Gemini CLI installs a Git repository only if
the extension is its root. For the MCP registry: the schema of 2025-12-11.
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
from upwell.hosts.opencode import packaged_plugin
from upwell.hosts.plugins import OPENCODE_PACKAGE

ROOT = Path(__file__).parents[1]
SHARED = ROOT / "plugins" / "upwell"
ABOUT = (
    "Memory for coding agents: puts what earlier sessions found out in front of the agent when it "
    "matters, and lets it read on where a tool's result was shortened. Needs uv or pipx."
)
START_FACTOR = 6
"""At the start of a session, where `run` waits while upwell is installed, a hook has a minute
instead of ten seconds."""
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
    SharedPlugin(
        host="cursor",
        manifest=".cursor-plugin/plugin.json",
        marketplace=".cursor-plugin/marketplace.json",
        root="CURSOR_PLUGIN_ROOT",
        server=_server("CURSOR_PLUGIN_ROOT"),
        source="plugins/upwell",
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
                handler[key] *= START_FACTOR
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
    texts = {"plugins/upwell/run": _script()}
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
    return {**texts, **_gemini_extension(), **_opencode_package(), "server.json": _registry_entry()}


def _gemini_extension() -> dict[str, str]:
    manifest = {
        "name": "upwell",
        "version": __version__,
        "description": ABOUT,
        "mcpServers": {
            "upwell": {"command": "sh", "args": ["${extensionPath}/plugins/upwell/run", "serve"]}
        },
    }
    return {
        "gemini-extension.json": _dumped(manifest),
        "hooks/hooks.json": _dumped(hooks("gemini", "${extensionPath}/plugins/upwell/run")),
        **_skills("skills"),
    }


def _opencode_package() -> dict[str, str]:
    """A package from the registry has no checkout around it: `dev/bundles.py` adds the wheel."""
    manifest = {
        "name": OPENCODE_PACKAGE,
        "version": __version__,
        "description": ABOUT,
        "license": "Apache-2.0",
        "keywords": ["opencode", "memory", "mcp"],
        "type": "module",
        "main": "./index.js",
        "exports": {".": "./index.js", "./server": "./index.js"},
        "files": ["index.js", "run", "skills", "upwell-*.whl"],
    }
    return {
        "plugins/opencode/package.json": _dumped(manifest),
        "plugins/opencode/index.js": packaged_plugin(),
        "plugins/opencode/run": _script(),
        **_skills("plugins/opencode/skills"),
    }


def _registry_entry() -> str:
    """The entry of the MCP registry, which allows 100 characters for the description."""
    entry = {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.upwell/upwell",
        "title": "upwell",
        "description": ABOUT.partition(":")[0] + ", with the full text of shortened tool results",
        "version": __version__,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "upwell",
                "version": __version__,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [
                    {"type": "positional", "value": "serve"},
                    {"type": "named", "name": "--tools"},
                ],
            }
        ],
    }
    return _dumped(entry)


def _script() -> str:
    script = (SHARED / "run").read_text()
    return re.sub(r"(?m)^version=.*$", f"version={__version__}", script, count=1)


def _skills(folder: str) -> dict[str, str]:
    """The skills of `plugins/upwell`, at their paths in another folder."""
    skills = sorted(SHARED.glob("skills/*/SKILL.md"))
    return {f"{folder}/{skill.parent.name}/SKILL.md": skill.read_text() for skill in skills}


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
