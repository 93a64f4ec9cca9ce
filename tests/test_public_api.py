"""The public API, and the cost of importing it."""

import subprocess
import sys

import upwell


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_exported_names():
    assert set(upwell.__all__) == {"Cue", "Hit", "Memory", "Skip", "Surfacing", "__version__"}
    for name in upwell.__all__:
        assert getattr(upwell, name) is not None


def test_the_exported_names_of_the_packages_that_others_import():
    """A name that changes here is named in CHANGELOG.md."""
    import upwell.app
    import upwell.compress

    assert set(upwell.compress.__all__) == {"STRATEGIES", "compress", "load"}
    assert set(upwell.app.__all__) == {
        "App",
        "MemoryApp",
        "Settings",
        "back_up",
        "build",
        "StoreApp",
        "clear_cached_responses",
        "config_mistakes",
        "decisions",
        "examine",
        "pause",
        "resume",
        "run_worker",
        "serve",
    }


def test_importing_upwell_costs_nothing():
    own = {name for name in loaded_by("import upwell") if name.startswith("upwell")}
    assert own == {"upwell"}


def test_the_hook_client_is_stdlib_only():
    loaded = loaded_by("import upwell.__main__, upwell.hook.client")
    own = {name for name in loaded if name.startswith("upwell")}
    client = {"upwell.hook", "upwell.hook.client", "upwell.hook.place"}
    assert own == {"upwell", "upwell.__main__", *client}
    assert not loaded & {"asyncio", "click", "msgspec", "sqlite3", "mcp", "pydantic", "json"}


def test_extras_are_imported_only_when_they_are_used():
    loaded = loaded_by("import upwell.app.store, upwell.app.memory")
    assert not loaded & {"numpy", "psycopg", "yaml", "httpx2", "opentelemetry.sdk"}


def test_the_documented_names_exist():
    from upwell.app import Settings, build
    from upwell.compress import compress
    from upwell.compress.progressive import PROGRESSIVE_FOOTER_TOKEN

    assert PROGRESSIVE_FOOTER_TOKEN == "\n---\n[progressive: chars="
    assert callable(build)
    assert Settings().home is None
    assert compress("short").text == "short"
