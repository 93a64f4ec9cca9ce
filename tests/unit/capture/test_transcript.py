"""A transcript whose history was rewritten."""

from pathlib import Path

import pytest

from upwell.capture.transcript import has_lost_marks

BEGUN = '{"kind":"main"}\n{"$set":{"messages":[{"type":"user"}]}}\n'
TOLD = '{"type":"user","content":[{"text":"RULES: be kind"}]}\n'
NOTED = '{"type":"user","content":[{"text":"NOTES"}]}\n'
ANEW = '{"$set":{"messages":[{"type":"user","content":[{"text":"a summary"}]}]}}\n'
KEPT = '{"$set":{"messages":[{"type":"user","content":[{"text":"RULES: be kind"}]}]}}\n'


@pytest.mark.parametrize(
    ("text", "forgotten"),
    [
        (BEGUN, False),
        (BEGUN + TOLD, False),
        (BEGUN + TOLD + ANEW, True),
        (BEGUN + TOLD + KEPT, False),
        (BEGUN + TOLD + ANEW + TOLD, False),
        (BEGUN + TOLD + ANEW + TOLD + ANEW, True),
        (BEGUN + ANEW, False),
        (BEGUN + TOLD + NOTED + ANEW + NOTED, True),
        (TOLD.replace("RULES", ANEW.strip().replace('"', "'")), False),
        ("", False),
    ],
)
def test_memories_that_are_no_longer_in_the_history(
    tmp_path: Path, text: str, forgotten: bool
) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text(text)
    assert has_lost_marks(str(chat), ("RULES", "NOTES")) is forgotten


def test_a_file_that_is_not_the_users_transcript_gives_nothing(tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text(BEGUN + TOLD + ANEW)
    link = tmp_path / "link.jsonl"
    link.symlink_to(chat)
    for path in (str(link), str(tmp_path / "none.jsonl"), "relative.jsonl", ""):
        assert not has_lost_marks(path, ("RULES",))
