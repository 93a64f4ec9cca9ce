"""The pictures of the docs. `make pictures` keeps them in `docs/pictures`."""

import os
from pathlib import Path

import pytest

from tests.browser.conftest import DESKTOP, PHONE, Open
from tests.conftest import ROOT

PICTURES = {
    "now": ("now?file=", DESKTOP, "light"),
    "sessions": ("sessions?id=0d5f7c1a-monday", DESKTOP, "dark"),
    "savings": ("savings", DESKTOP, "light"),
    "memory-phone": ("memory", PHONE, "dark"),
}
"""The path, the size and the colours of each picture."""
MAX_BYTES = 160_000
WITHOUT_HOSTILE = """() => document.querySelectorAll(".event, .memory").forEach((element) => {
    if (element.textContent.includes("window.hacked")) element.remove()
})"""


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_docs(open_page: Open, tmp_path: Path, name: str) -> None:
    path, size, scheme = PICTURES[name]
    page = open_page(path, size, scheme)
    page.evaluate(WITHOUT_HOSTILE)
    page.wait_for_timeout(500)
    folder = ROOT / "docs" / "pictures" if os.environ.get("UPWELL_PICTURES") else tmp_path
    picture = folder / f"{name}.png"
    page.screenshot(path=picture)
    assert 5_000 < picture.stat().st_size < MAX_BYTES
    if folder == tmp_path:
        assert (ROOT / "docs" / "pictures" / f"{name}.png").is_file(), "run `make pictures`"
