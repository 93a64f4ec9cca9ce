"""A page that becomes Markdown keeps its text; scripts and styles are counted and marked."""

from upwell.compress.compressor import Compressor
from upwell.compress.lossless import to_markdown
from upwell.ground.types.compression import Budget, Compressed, Passage

SCRIPT = "".join(f"  function lift{n}(crane) {{ return crane.lift({n}) }}\n" for n in range(120))
PAGE = (
    "<!doctype html>\n<html>\n<head>\n<title>Harbour</title>\n</head>\n<body>\n"
    "<header><h1>Quays</h1>\n<nav><a href='/north'>North quay</a></nav></header>\n"
    "<form><label>Berth</label></form>\n<p hidden>Closed at night</p>\n"
    f"<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
)


def fitted(text: str, name: str = "", key: str = "", floor: float = 0.0) -> Compressed:
    budget = Budget(max_chars=len(text) // 2, floor=floor)
    passage = Passage(text=text, name=name, key=key)
    return Compressor().compress(passage, budget, strategy="auto")


def test_headers_links_and_forms_stay() -> None:
    markdown = to_markdown(PAGE)
    for words in ("# Quays", "[North quay](/north)", "Berth", "Closed at night"):
        assert words in markdown


def test_scripts_are_counted_and_the_key_is_named() -> None:
    done = fitted(PAGE, key="0123456789abcdef")
    assert not done.lossless
    assert [part.what for part in done.omitted] == ["characters of scripts and styles"]
    assert done.omitted[0].count == len(SCRIPT.strip())
    last = done.text.splitlines()[-1]
    assert f"{len(SCRIPT.strip()):,} of {len(PAGE):,} characters of scripts" in last
    assert 'key="0123456789abcdef"' in last


def test_scripts_are_counted_if_the_markdown_is_shortened_as_well() -> None:
    words = "".join(f"<p>Crane {n} lifts box {n * 7} at quay {n % 9}.</p>\n" for n in range(900))
    done = fitted(PAGE.replace("</body>", words + "</body>"), key="0123456789abcdef")
    assert {part.what for part in done.omitted} == {"lines", "characters of scripts and styles"}


def test_a_page_that_the_agent_may_edit_stays_code() -> None:
    numbered = "".join(f"{n}\t{row}" for n, row in enumerate(PAGE.splitlines(keepends=True), 1))
    for done in (fitted(numbered), fitted(PAGE, name="src/harbour/index.html")):
        assert "<title>Harbour</title>" in done.text
        assert "function lift" in done.text
        assert "→" in done.text
    assert "<h1>" not in fitted(PAGE, name="https://example.org/index.html").text


def test_a_form_below_the_floor_is_refused() -> None:
    done = fitted(PAGE, floor=0.5)
    assert done.after >= 0.45 * len(PAGE)
    assert "function lift" in done.text
