"""config show|check · doctor"""

from typing import Annotated, Any

import typer

from upwell.cli.output import note, say, say_json, table
from upwell.cli.session import with_app
from upwell.cli.times import iso

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

config = typer.Typer(help="Show or check the configuration.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(config, name="config")
    app.command()(explain)
    app.command()(tune)
    app.command()(doctor)


@config.command("show")
def show(as_json: Json = False) -> None:
    """Every setting, and where it comes from."""
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
    rows = [
        {"key": key, "value": plain(entry.value), "origin": entry.origin}
        for key, entry in values.items()
    ]
    table(("key", "value", "origin"), rows, "No settings.")


@config.command("check")
def check() -> None:
    """Read the configuration and say what is wrong with it."""
    from upwell.config import load

    found = load()
    say(f"{found.home.config_file}: {len(found.values)} settings, all known")


def explain(
    number: Annotated[int, typer.Option("-n", min=1, help="How many of the latest.")] = 20,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    as_json: Json = False,
) -> None:
    """Why upwell spoke or kept silent lately, call by call, the newest last."""
    found = with_app(lambda app: app.decisions())
    kept = [one for one in found if session in (None, one["session"])][-number:]
    if as_json:
        say_json({"decisions": kept})
        return
    rows = [
        {
            "when": iso(one["at"]),
            "door": one["tool"] or one["door"],
            "outcome": one["outcome"],
            "why": one["detail"] or ", ".join(memory for memory, _ in one["memories"]),
            "confidence": f"{one['confidence']:.2f}",
            "for": "; ".join(one["queries"])[:100],
        }
        for one in kept
    ]
    table(("when", "door", "outcome", "why", "confidence", "for"), rows, "Nothing was decided yet.")


def tune(
    apply: Annotated[
        bool, typer.Option("--apply", help="Use it in the sessions that run now, too.")
    ] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Forget what was learned.")] = False,
    as_json: Json = False,
) -> None:
    """Show what was learned about each tool's budget; it counts from the next session on."""
    if reset:
        say(f"forgot {with_app(lambda app: app.budgets.forget())} counts")
        return
    if apply:
        with_app(lambda app: app.budgets.ask())
        note("upwell: running sessions take it into use within a minute")
    learned = with_app(lambda app: app.budgets.learned())
    rows = [
        {"tool": one.tool, "budget": f"x {one.ratio:.2f}", "samples": one.samples}
        for one in learned
    ]
    if as_json:
        say_json(
            {
                "tools": [
                    {"tool": one.tool, "budget_ratio": one.ratio, "samples": one.samples}
                    for one in learned
                ]
            }
        )
    else:
        table(("tool", "budget", "samples"), rows, "Nothing was learned yet.")


def doctor(as_json: Json = False) -> None:
    """Look at every part and say what is wrong and what to do."""
    import asyncio

    from upwell.app import examine

    findings = asyncio.run(examine())
    if as_json:
        say_json(
            {
                "ok": all(ping.ok for ping in findings.values()),
                "parts": {
                    part: {"ok": ping.ok, "detail": ping.detail, "hint": ping.hint}
                    for part, ping in findings.items()
                },
            }
        )
    else:
        rows = [
            {"part": part, "state": "ok" if ping.ok else "FAILED", "detail": ping.detail}
            for part, ping in findings.items()
        ]
        table(("part", "state", "detail"), rows, "Nothing to look at.")
        for part, ping in findings.items():
            if not ping.ok and ping.hint:
                note(f"upwell: {part}: {ping.hint}")
    if not all(ping.ok for ping in findings.values()):
        raise typer.Exit(1)


def plain(value: Any) -> Any:
    """A setting as JSON can hold it."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
