"""The commands `config show|check`, `cache clear`, `backup` and `doctor`."""

import json
from typing import TYPE_CHECKING, Any

from click.exceptions import Exit

from upwell.cli.command import Group
from upwell.cli.output import Json, note, row, say, say_json
from upwell.cli.session import folder, read_config, run
from upwell.ground.text.format import counted

if TYPE_CHECKING:
    from upwell.ground.types.rpc import Ping

config = Group("Show or check the configuration.")
cache = Group("Cached server responses.")


def backup(as_json: Json = False) -> None:
    """Back up the memory now. A backup is also made every day."""
    from upwell.app import back_up
    from upwell.app.damage import restoring
    from upwell.ground.home import Home, default_home

    read_config()  # reports invalid settings
    copies = run(back_up())
    if as_json:
        say_json({"backup": str(copies[0]), "kept": [str(path) for path in copies]})
        return
    say(str(copies[0]))
    way_back = restoring(Home(default_home()), copies[0])
    note(f"upwell: {counted(len(copies), 'backup')}; {way_back}")


@cache.command("clear")
def clear() -> None:
    """Clear the cache."""
    from upwell.app import clear_cached_responses

    say(f"cleared {counted(run(clear_cached_responses()), 'cached response')}")


@config.command("show")
def show(as_json: Json = False) -> None:
    """Print every setting as TOML, with its origin."""
    from upwell.config import load

    values = load().shown()
    if as_json:
        say_json(
            {
                key: {"value": plain(entry.value), "origin": entry.origin}
                for key, entry in values.items()
            }
        )
        return
    for key, entry in values.items():
        value = plain(entry.value)
        line = f"# {key} is not set" if value is None else f"{key} = {_as_toml(value)}"
        say(f"{line}  # {entry.origin}")


@config.command("check")
def check(as_json: Json = False) -> None:
    """Check the configuration and report every mistake in it."""
    from upwell.app import config_mistakes
    from upwell.ground.context_windows import unknown_model

    config, mistakes = config_mistakes()
    remark = "" if mistakes else unknown_model(config.agent)
    if as_json:
        say_json(
            {
                "ok": not mistakes,
                "file": str(config.home.config_file),
                "settings": len(config.values),
                "mistakes": [{"message": each.message, "hint": each.hint} for each in mistakes],
                "remark": remark,
            }
        )
    else:
        for text in filter(None, (*mistakes, remark)):
            note(f"upwell: {text}")
        if not mistakes:
            say(f"{config.home.config_file}: {counted(len(config.values), 'setting')}, all valid")
    if mistakes:
        raise Exit(1)


def doctor(as_json: Json = False) -> None:
    """Check every part of upwell, and print how to fix each fault."""

    from upwell.app import examine

    async def findings() -> dict[str, "Ping"]:
        pings = {}
        async for part, ping in examine(folder()):
            pings[part] = ping
            if not as_json:
                _show_part(part, ping)
        return pings

    parts = run(findings())
    is_well = all(ping.ok for ping in parts.values())
    if as_json:
        say_json(
            {
                "ok": is_well,
                "parts": {
                    part: {"ok": ping.ok, "detail": ping.detail, "hint": ping.hint}
                    for part, ping in parts.items()
                },
            }
        )
    if not is_well:
        raise Exit(1)


def _show_part(part: str, ping: "Ping") -> None:
    row(((part, 14), ("ok" if ping.ok else "FAILED", 6), (ping.detail, 0)))
    if not ping.ok and ping.hint:
        note(f"upwell: {part}: {ping.hint}")


def _as_toml(value: Any) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    entries = (f"{_key(name)} = {_as_toml(entry)}" for name, entry in value.items())
    return f"{{ {', '.join(entries)} }}"


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else json.dumps(name, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A setting as a value that JSON can represent."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
