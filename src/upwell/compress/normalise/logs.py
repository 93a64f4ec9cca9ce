"""Runs of the very same line in a log, said once and counted."""

from itertools import groupby

MIN_RUN = 4


def fold_runs(text: str) -> str:
    """`text` with every run of four equal lines or more as one of them and a count. Says the
    same; blank lines are left alone."""
    parts: list[str] = []
    for line, run in groupby(text.splitlines(keepends=True)):
        times = sum(1 for _ in run)
        if times < MIN_RUN or not line.strip():
            parts.append(line * times)
        else:
            end = line[len(line.rstrip("\r\n")) :] or "\n"
            parts.append(
                f"{line.rstrip(chr(10) + chr(13))}{end}[the line above {times:,} times]{end}"
            )
    return "".join(parts)
