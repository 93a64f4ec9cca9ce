"""`python traced.py FILE ARGUMENTS…` runs the upwell command line and records the functions that it
starts: one line of FILE for each (`surface/pipeline.py: Surfacer.surface`), in order of time.
"""

import os
import sys
from pathlib import Path
from types import CodeType

import upwell

SRC = str(Path(upwell.__file__).parent) + "/"


def main() -> int:
    record, sys.argv = Path(sys.argv[1]), ["upwell", *sys.argv[2:]]
    started: list[CodeType] = []

    def on_start(code: CodeType, _: int) -> object:
        if code.co_filename.startswith(SRC):
            started.append(code)
            return None
        return sys.monitoring.DISABLE

    sys.monitoring.use_tool_id(sys.monitoring.PROFILER_ID, "traced")
    sys.monitoring.register_callback(
        sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START, on_start
    )
    sys.monitoring.set_events(sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START)

    def write() -> None:
        sys.monitoring.set_events(sys.monitoring.PROFILER_ID, 0)
        names = (f"{code.co_filename[len(SRC) :]}: {code.co_qualname}" for code in started)
        record.write_text("\n".join(names), encoding="utf-8")

    # The hook's client ends with `os._exit` once its answer is taken.
    end, os._exit = os._exit, lambda status: (write(), end(status))
    try:
        from upwell.__main__ import main as upwell_main

        return upwell_main()
    finally:
        write()


if __name__ == "__main__":
    sys.exit(main())
