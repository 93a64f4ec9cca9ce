"""The search box of the documentation site, in Chromium: a user's question leads to its answer."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import DESKTOP, started_browser

ROOT = Path(__file__).parents[2]
SHOWN = 3


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site, built and served on loopback."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True,
    )  # fmt: skip
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Page]:
    with started_browser() as browser:
        page = browser.new_page(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
        page.set_default_timeout(15_000)
        page.goto(address)
        yield page


def results(page: Page, query: str) -> list[str]:
    """The addresses, as `page/#section`, that the search box shows first for a typed query."""
    box = page.locator("[data-md-component=search-query]")
    box.fill("")
    box.press_sequentially(query)  # the site searches when a key is released
    # Wait until the results are those of the whole query, and no longer those of its first letters.
    before: list[str] = []
    while (shown := _shown(page)) != before or not shown:
        before = shown
        page.wait_for_timeout(500)
    return shown


def _shown(page: Page) -> list[str]:
    links = page.eval_on_selector_all(
        ".md-search-result__link", "links => links.map((link) => link.getAttribute('href'))"
    )
    parts = map(urlsplit, links)
    return [f"{part.path}#{part.fragment}" for part in parts if part.fragment][:SHOWN]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("uninstall", "faq/#how-do-i-uninstall-it"),
        ("How do I update it to a new version?", "faq/#how-do-i-upgrade-it"),
        ("downgrade", "faq/#how-do-i-upgrade-it"),
        ("Is its database encrypted on disk?", "faq/#does-it-store-secrets"),
        ("delete everything about one project", "faq/#how-do-i-delete-everything"),
        ("not a git repository", "faq/#does-it-work-with-branches"),
        ("too quiet", "faq/#it-is-too-quiet"),
        ("RAM", "faq/#what-does-it-cost"),
        ("prompt injection", "faq/#can-a-web-page"),
        ("original_ttl_seconds", "faq/#"),
        ("What happens if upwell crashes or hangs?", "faq/#what-happens-to-my-session"),
        ("telemetry", "faq/#is-anything-sent-anywhere"),
        ("git push --force deny rule", "faq/#it-refused-blocked-a-command"),
        ("exceeds maximum allowed tokens (25000)", "faq/#mcp-tool-response-exceeds"),
        ("what is lost in git diff", "faq/#does-it-shorten-what-bash"),
        ("memories not accessible after upgrading", "faq/#my-memories-are-missing"),
    ],
)  # fmt: skip
def test_a_question_leads_to_its_answer(page: Page, query: str, answer: str) -> None:
    assert any(answer in address for address in results(page, query))
