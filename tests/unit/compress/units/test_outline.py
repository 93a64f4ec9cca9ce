"""Lines of code need the lines that govern them."""

from upwell.compress import compress
from upwell.compress.units.base import SIGNATURE
from upwell.compress.units.outline import split_code as split

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
    assert len(needs) == 24


SIGNATURES = (
    "def lift(self, load):",
    "pub async fn lift(load: &Load) -> Crane {",
    "export const lift = async (load) => {",
    "static PyObject *lift(Crane *self, int load) {",
    "V8_EXPORT void Lift(Crane* crane, int load);",
    "class Crane:",
)


def salience_of(line: str, text: str) -> float:
    units = split(text)
    rows = [text[start:end].strip() for start, end in zip(units.starts, units.ends, strict=True)]
    return units.salience[rows.index(line)]


def test_signatures_of_many_languages_count_most() -> None:
    for line in SIGNATURES:
        assert salience_of(line, f"a = 1\n{line}\n    b = 2\n") == SIGNATURE, line
    for line in ("const reach = 12;", "LOAD_LIMIT = 40"):
        assert 0.0 < salience_of(line, f"a = 1\n{line}\nb = 2\n") < SIGNATURE, line
    for line in ("return lift(load);", "lift(load);", "if (load > limit) {", "total = lift(load)"):
        assert salience_of(line, f"a = 1\n{line}\nb = 2\n") == 0.0, line


def test_a_signature_may_have_its_brace_on_the_next_line() -> None:
    text = "int\nlift(Crane *crane, int load)\n{\n    if (load)\n    {\n        moor();\n    }\n}\n"
    assert salience_of("lift(Crane *crane, int load)", text) == SIGNATURE
    assert salience_of("if (load)", text) == 0.0


def test_a_tenth_of_a_file_shows_its_signatures() -> None:
    text = "".join(
        f"def lift_{n}(crane_{n}, load_{n}):\n"
        + "".join(f"    total = total + part_{n % 7} * share_{k}\n" for k in range(12))
        for n in range(30)
    )
    shown = compress(text, max_chars=len(text) // 8, name="crane.py").text
    assert sum(f"def lift_{n}(" in shown for n in range(30)) >= 24
