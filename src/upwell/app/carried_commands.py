"""The commands that a session needs again after a compaction, taken from its transcript."""

from collections.abc import Sequence

MAX_BYTES = 20_000_000
"""How many bytes are read from the end of a transcript, where the latest compaction is recorded."""


def commands_in(path: str) -> Sequence[str]:
    """The commands that worked and are worth repeating; empty if the file is not a transcript that
    belongs to this user, or if its end cannot be read alone, as with Gemini CLI.
    """
    # Imported here, because few sessions are compacted.
    from upwell.episodes.failures import succeeded
    from upwell.episodes.signatures import command_of
    from upwell.replay.transcripts import events_at_end
    from upwell.sessions.commands import carried
    from upwell.sessions.turns import Run

    commands = ((command_of(event), event) for event in events_at_end(path, MAX_BYTES))
    return carried(Run(command, succeeded(event)) for command, event in commands if command)
