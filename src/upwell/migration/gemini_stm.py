"""The `stm.json` of Gemini CLI's short-term memory, or of another tool that uses this format.

The notes go into upwell's own `stm.json`, where `search_memory` finds them.

Source: the design of the feature, which tests/NAMES.md calls seed 001.
"""

from collections.abc import Iterator
from pathlib import Path

from upwell.ground.project import repository_of
from upwell.memory.notes.reading import read_notes
from upwell.migration.base import Item, Note, Place

_FILE = "stm.json"


class GeminiStm:
    name = "gemini-stm"
    usual = "~/.gemini/stm.json, or .gemini/stm.json of this project"

    def stores(self, place: Place) -> list[Path]:
        root = Path(repository_of(str(place.folder)) or place.folder)
        folders = dict.fromkeys((place.user_folder / ".gemini", root / ".gemini"))
        return [folder / _FILE for folder in folders if (folder / _FILE).is_file()]

    def read(self, path: Path, place: Place) -> Iterator[Item]:
        file = path / _FILE if path.is_dir() else path
        folder = file.resolve().parent
        is_users = folder.parent == place.user_folder.resolve()
        project = None if is_users else repository_of(str(folder))
        for entry in read_notes(file):
            yield Note(entry=entry, project=project)
