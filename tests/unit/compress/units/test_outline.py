"""Lines of code need the lines that govern them."""

from upwell.compress import compress
from upwell.compress.units.outline import split

CODE = """class Crane:
    reach = 12

    def lift(self, load):
        if load.weight > self.limit:
            raise TooHeavy(load)
        return load

def park(crane):
    crane.stop()
"""


def governing(text: str, line: str) -> list[str]:
    units = split(text)
    rows = [text[start:end].strip() for start, end in zip(units.starts, units.ends, strict=True)]
    return [rows[unit] for unit in units.needs[rows.index(line)]]


def test_a_line_needs_its_condition_its_function_and_its_class() -> None:
    assert governing(CODE, "raise TooHeavy(load)") == [
        "class Crane:",
        "def lift(self, load):",
        "if load.weight > self.limit:",
    ]
    assert governing(CODE, "return load") == ["class Crane:", "def lift(self, load):"]
    assert governing(CODE, "crane.stop()") == ["def park(crane):"]


def test_a_closing_bracket_governs_nothing() -> None:
    assert governing("func a() {\n    b(\n    )\n        c\n}", "c") == ["func a() {"]


def test_deep_nesting_needs_a_few_lines_only() -> None:
    text = "\n".join(" " * depth + f"level {depth}" for depth in range(40))
    needs = governing(text, "level 39")
    assert needs[0] == "level 0"
    assert needs[-1] == "level 38"
    assert len(needs) <= 7


def test_every_kept_line_has_what_governs_it() -> None:
    text = "\n".join(CODE.replace("lift", f"lift_{n}").replace("Crane", f"C{n}") for n in range(30))
    retained = compress(text, max_chars=700, name="crane.py").text.split("\n")
    for place, row in enumerate(retained):
        if "raise TooHeavy" in row:
            assert "if load.weight" in retained[place - 1]
