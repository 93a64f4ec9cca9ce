"""How well the transcripts of each agent were understood, in words for the user."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.text.words import counted
from upwell.hosts import HOSTS
from upwell.replay.transcripts import FORMATS, Transcript, transcripts_of_user
from upwell.replay.transcripts.base import ReadTally, TranscriptFormat

MIN_MISSED_SHARE = 0.01
"""Fewer unknown records than this are not worth a line: new versions add records that say nothing
about the work."""
MIN_EMPTY_RECORDS = 20
"""An agent with this many records and not a single prompt is probably misread."""
MAX_SHOWN_KINDS = 3
MAX_TRIED_BYTES = 4_000_000
"""A larger transcript takes too long for a check."""


class Census:
    """Adds up the tallies of transcripts, by agent."""

    def __init__(self) -> None:
        self._tallies: dict[str, ReadTally] = {}
        self._written_for: dict[str, str] = {}

    def add(self, format: TranscriptFormat, tally: ReadTally) -> None:
        """Add the tally of one transcript."""
        total = self._tallies.setdefault(format.name, ReadTally())
        self._written_for[format.name] = format.written_for
        total.records += tally.records
        total.prompts += tally.prompts
        total.unknown = dict(Counter(total.unknown) + Counter(tally.unknown))
        total.version = max(total.version, tally.version, key=_order)

    def versions(self) -> Iterator[str]:
        """The agents whose transcripts were read, with their newest versions."""
        for name, tally in sorted(self._tallies.items()):
            yield f"{_title(name)} {tally.version}".strip()

    def lines(self) -> Iterator[str]:
        """A line for each agent whose transcripts were not understood."""
        for name, tally in sorted(self._tallies.items()):
            is_misread = tally.missed >= max(1.0, MIN_MISSED_SHARE * tally.records)
            is_empty = not tally.prompts and tally.records >= MIN_EMPTY_RECORDS
            if not is_misread and not is_empty:
                continue
            kinds = [kind for kind, _ in Counter(tally.unknown).most_common(MAX_SHOWN_KINDS)]
            line = f"{_title(name)} {tally.version}".strip()
            line += f": {tally.missed:,} of {counted(tally.records, 'record')} not understood"
            line += f" ({', '.join(kinds)})" if any(kinds) else ""
            line += ", and no prompt found" if is_empty else ""
            known = self._written_for[name]
            yield f"{line}; this upwell knows {known}" if known else line


def newest_of_user(home: Path, cwd: Path) -> Census:
    """The census of the newest transcript of each agent."""
    census = Census()
    for format in FORMATS:
        if (transcript := _newest(transcripts_of_user(home, cwd, format))) is None:
            continue
        tally = ReadTally()
        try:
            for _ in transcript.events(0, tally):
                pass
        except (UsageError, OSError) as error:
            tally.records += 1
            tally.miss(str(error))
        census.add(format, tally)
    return census


def _newest(transcripts: Sequence[Transcript]) -> Transcript | None:
    dated = []
    for transcript in transcripts:
        try:
            info = transcript.path.stat()
        except OSError:
            continue
        if info.st_size <= MAX_TRIED_BYTES:
            dated.append((info.st_mtime_ns, transcript))
    return max(dated, key=lambda pair: pair[0])[1] if dated else None


def _title(format_name: str) -> str:
    return HOSTS[format_name].title if format_name in HOSTS else format_name


def _order(version: str) -> tuple[int, ...]:
    """Sorts versions: `0.61.0` before `0.147.0`."""
    numbers = (part for part in version.replace("-", ".").split("."))
    return tuple(int(part) for part in numbers if part.isdecimal() and len(part) < 10)
