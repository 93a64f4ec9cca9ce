"""A hook that answers for itself is silent unless the configuration surely lets it speak."""

import os
import re

import pytest

from upwell.ground.text.words import STOP_WORDS as SHIPPED
from upwell.ground.text.words import fold
from upwell.hook.cold import _changed
from upwell.hook.plain import _file, _folded, _telling
from upwell.hook.stop_words import STOP_WORDS
from upwell.memory.terms import query_words


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("UPWELL_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "text",
    [
        "surface = {enabled=false}",
        "[ surface ]\nenabled = false",
        '["surface"]\nenabled = false',
        "['surface']\nenabled = false",
        '["\\u0073urface"]\nenabled = false',
        "surface.enabled = false",
        '"surface".enabled = false',
        "hook = {enabled=false}",
        "[hook]\nport = 47620\nenabled = false",
        "hook = 3",
        "[ \t hook]\nenabled = false",
        '[tool."x__*".surface]\nenabled = false',
        "[server.a]\ncommand='x'\nsurface={enabled=false}",
        "[ server . a . surface ]\nenabled = false",
        "[intent]\nrequired = true",
        "surface = {",
        "server = 3\nx = 'memory'",
        "[gateway]\nx = '\xff surface'".encode("latin-1"),
        "x = " + "[" * 100_000 + '"memory"',
    ],
)
def test_what_may_be_said_is_left_to_the_daemon(tmp_path, text):
    raw = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "config.toml").write_bytes(raw)
    assert _changed(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hook.port = 47620",
        '[hook]\ncompress = ["claude"]\nidle_minutes = 90',
        "[server.memory]\ncommand = 'npx'\nargs = ['server-memory', '--tool']",
        "# surface\n[gateway]\nlazy_tools_tokens = 5\n",
        '[server.a]\ncommand = "C:\\\\x.exe"',
    ],
)
def test_servers_change_nothing(tmp_path, text):
    (tmp_path / "config.toml").write_text(text)
    assert not _changed(str(tmp_path))


def test_no_configuration_changes_nothing(tmp_path):
    assert not _changed(str(tmp_path))


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "config.toml")
    assert _changed(str(tmp_path))


def test_a_lexicon_changes_what_words_say(tmp_path):
    (tmp_path / "lexicon.toml").write_text("")
    assert _changed(str(tmp_path))


def test_its_stop_words_are_those_of_the_lexicon():
    assert {fold(word) for word in SHIPPED if len(fold(word)) > 1} == STOP_WORDS


@pytest.mark.parametrize(
    "prompt",
    [
        "payments down?",
        "why is the flag off",
        "shut down the ledger drain worker",
        "tear down carriage schema",
        "log out of the zeppelin spool now",
        "disk is out",
        "¿dónde está la exportación de facturas otra vez?",
        "may we roll back again, please, between both of these",
    ],
)
def test_its_words_are_those_that_the_daemon_looks_up(prompt):
    asked = [_folded(word) for word in re.findall(r"[^\W_]+", prompt)]
    assert _telling(asked) == query_words(prompt)


@pytest.mark.parametrize(
    ("said", "file"),
    [("/p/src/a.py", "/p/src/a.py"), ("src/a.py", "/p/src/a.py"), ("./src/../a.py", "/p/a.py")],
)
def test_a_file_is_said_from_the_root_or_from_the_folder(said, file):
    """Gemini CLI passes on what its model wrote."""
    assert _file({"cwd": "/p", "tool_input": {"file_path": said}}) == file
    assert _file({"cwd": "/p", "tool_input": {"file_path": 3}}) == ""
