"""What can be read off one event exactly: the path that does not exist."""

from upwell.episodes.events import Event

HEAD_CHARS = 400
_ABSENT = ("no such file or directory", "file does not exist", "could not find file", "enoent")


def missing_path(event: Event) -> str:
    """The file that a call wanted to read and that does not exist; "" for none."""
    path = event.args.get("file_path")
    if event.tool != "Read" or not isinstance(path, str):
        return ""
    answer = event.out[:HEAD_CHARS].lower()
    return path if any(words in answer for words in _ABSENT) else ""
