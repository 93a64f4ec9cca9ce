"""The house rule: a file imports only from its own package or from a lower floor."""

import ast
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "upwell"

FLOORS = [
    {"ground"},
    {"episodes"},
    {"compress", "memory", "learn", "usage", "hosts", "wire"},
    {"surface"},
    {"gateway", "hook", "tools", "web", "capture", "replay", "setup", "demo"},
    {"sessions", "wrap"},
    {"config"},
    {"app"},
    {"cli", "testing"},
]
ENTRY = {"__init__", "__main__"}

STAIRS = {
    "compress": """
        relevance base options folding units order json assemble strategies lossless selective
        progressive compressor originals
    """.split(),
    "ground": """
        secrets errors files clock context_windows types names settings trace background text llm
        listener project sqlite postgres ledger host_sessions pause
    """.split(),
    "memory": """
        options ranking records sources places notes lookups vectors meaning base topics team
        sqlite documents folder_pages stm relocation postgres folder external library line transfer
    """.split(),
    "surface": """
        loaded query options event seen_log moments render bearing worth intent journal learning
        lessons filters rules judge session_start record explain pipeline offer
    """.split(),
    "gateway": """
        options shapes eras clients upstreams calls routing front server
    """.split(),
    "app": """
        shortening capture ltm lessons lesson_queue store review memory reporting setting_up
        local_copy lesson_past turns wiring team replaying running doctor lesson_book login
        dashboard http daemon
    """.split(),
}
"""The sub-packages and files of a package, from the lowest: each imports only from its own or from
a lower one."""


def room(module: str) -> str:
    """`upwell.ground.sqlite.database` → `ground`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def floor(name: str) -> int:
    for number, rooms in enumerate(FLOORS):
        if name in rooms:
            return number
    raise AssertionError(f"{name} stands on no floor: add it to FLOORS")


def imports(path: Path) -> set[str]:
    result: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names if alias.name.startswith("upwell")}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import; name the module in full"
            if node.module == "upwell":
                result |= {f"upwell.{alias.name}" for alias in node.names}
            elif node.module and node.module.startswith("upwell."):
                result.add(node.module)
    return result


def violations(root: Path) -> list[str]:
    wrong = []
    for path in sorted(root.rglob("*.py")):
        own = path.relative_to(root).with_suffix("").parts[0]
        if own in ENTRY:
            continue
        for module in imports(path):
            other = room(module)
            if other in (own, "__version__"):
                continue
            if other in ENTRY or floor(other) >= floor(own):
                wrong.append(f"{path.relative_to(root)} imports {module}")
    return wrong


def test_nothing_imports_upward_or_sideways() -> None:
    assert violations(SRC) == []


def test_the_rule_notices_ground_importing_upward(tmp_path: Path) -> None:
    (tmp_path / "ground").mkdir()
    (tmp_path / "ground" / "bad.py").write_text("from upwell.surface.pipeline import Surfacer\n")
    assert violations(tmp_path) == ["ground/bad.py imports upwell.surface.pipeline"]


def test_the_rule_notices_neighbours(tmp_path: Path) -> None:
    (tmp_path / "compress").mkdir()
    (tmp_path / "compress" / "bad.py").write_text("def f():\n    import upwell.memory.base\n")
    assert violations(tmp_path) == ["compress/bad.py imports upwell.memory.base"]


def needed_to_load(path: Path, module: str) -> set[str]:
    """The modules that are loaded together with `module`: its top-level imports and the packages
    around them, except the packages around `module` itself, which are loaded before.
    """
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("upwell"):
            names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("upwell")}
    around = {name.rsplit(".", n)[0] for name in names for n in range(name.count("."))}
    return {name for name in names | around if not f"{module}.".startswith(f"{name}.")}


def circles(root: Path) -> list[str]:
    """Imports that lead back to where they began: such a module cannot be the first one loaded."""
    modules = module_paths(root)
    needed = {name: needed_to_load(path, name) & modules.keys() for name, path in modules.items()}
    return circles_in(needed)


def module_paths(root: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    return {
        ".".join(("upwell", *path.relative_to(root).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in root.rglob("*.py")
    }


def circles_in(needed: Mapping[str, Collection[str]]) -> list[str]:
    """The circles of a graph of imports, each as `a → b → a`."""
    result, done = [], set()

    def walk(name: str, way: list[str]) -> None:
        if name in way:
            result.append(" → ".join([*way[way.index(name) :], name]))
        elif name not in done:
            for other in sorted(needed[name]):
                walk(other, [*way, name])
            done.add(name)

    for name in sorted(needed):
        walk(name, [])
    return result


def test_no_circle_inside_a_package() -> None:
    """Imports in functions and for type checkers count, too."""
    modules = {name: path for name, path in module_paths(SRC).items() if name.count(".") > 0}
    known = {
        name: {other for other in imports(path) if other in modules and other != name}
        for name, path in modules.items()
    }
    assert circles_in(known) == []


def test_every_module_can_be_the_first_that_is_loaded() -> None:
    assert circles(SRC) == []


def test_the_rule_notices_a_circle(tmp_path: Path) -> None:
    (tmp_path / "compress").mkdir()
    (tmp_path / "compress" / "__init__.py").write_text("")
    (tmp_path / "compress" / "a.py").write_text("from upwell.compress.b import B\n")
    (tmp_path / "compress" / "b.py").write_text("from upwell.compress import a\n")
    assert circles(tmp_path) == ["upwell.compress.a → upwell.compress.b → upwell.compress.a"]


def test_every_package_has_a_floor() -> None:
    rooms = {room for floor_rooms in FLOORS for room in floor_rooms}
    packages = {path.name for path in SRC.iterdir() if path.is_dir()} - {"__pycache__"}
    assert packages <= rooms, "add the new package to FLOORS"


def step(package: str, name: str) -> int:
    stairs = STAIRS[package]
    assert name in stairs, f"{package}/{name} stands on no step: add it to STAIRS"
    return stairs.index(name)


def upward_steps(root: Path, package: str) -> list[str]:
    """Imports inside a package that lead upward."""
    wrong = []
    for path in sorted((root / package).rglob("*.py")):
        own = path.relative_to(root / package).with_suffix("").parts[0]
        if own in ENTRY:
            continue
        for module in imports(path):
            parts = module.split(".")
            if parts[1] != package or len(parts) < 3:
                continue
            if step(package, parts[2]) > step(package, own):
                wrong.append(f"{path.relative_to(root)} imports {module}")
    return wrong


@pytest.mark.parametrize("package", STAIRS)
def test_imports_inside_a_package_lead_down(package: str) -> None:
    assert upward_steps(SRC, package) == []


def test_the_rule_notices_a_step_upward(tmp_path: Path) -> None:
    (tmp_path / "gateway" / "calls").mkdir(parents=True)
    bad = tmp_path / "gateway" / "calls" / "bad.py"
    bad.write_text("from upwell.gateway.routing.tools import Target\n")
    assert upward_steps(tmp_path, "gateway") == [
        "gateway/calls/bad.py imports upwell.gateway.routing.tools"
    ]
