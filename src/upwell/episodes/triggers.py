"""Triggers: the keys of the situations in which an episode surfaces.

A trigger is a short string `kind:value`. The same situation gives the same triggers in every
session, so its episodes can be found by exact comparison:

    way:PROGRAM:DIGEST      this program cannot be run in this way, for this job
    fails:PROGRAM:DIGEST    this program fails with this error
    file:NAME               a file with this name is missing (only for distinctive names)
    file:FOLDER/NAME        a file is missing in this folder, or in one of its subfolders
    below:FOLDER/NAME       a file is missing in this folder; it may be in a subfolder
    symbol:NAME             a search for this identifier found nothing
    ticket:NAME             a prompt names this ticket
"""

import re
from collections.abc import Iterable

from upwell.episodes.events import Kind, SessionEvent, inside
from upwell.episodes.failures import Failure, failure_of
from upwell.episodes.searches import missing_path, names_not_found
from upwell.episodes.signatures import digest
from upwell.episodes.tickets import tickets_of
from upwell.episodes.trials import LAUNCHED, Trial, trial_of

type Trigger = str
MAX_TRIGGER_CHARS = 120
_FAMILIES = {
    ".yml": ".yaml",
    **dict.fromkeys((".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), ".js"),
    **dict.fromkeys((".jsonc", ".json5"), ".json"),
}
"""Extensions that are easily confused when an agent guesses a file name. They count as equal."""
_SITUATIONS = {
    **dict.fromkeys(("file", "below"), "the file {} is missing"),
    "symbol": "a search for {} finds nothing",
    "ticket": "a prompt names the ticket {}",
    "tool": "{} is called",
}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_FRAMEWORK = frozenset(
    "index main mod lib __init__ __main__ page layout route package tsconfig conftest error"
    " loading readme.md skill.md claude.md agents.md gemini.md changelog.md license.md".split()
)
"""File names that occur in many folders and therefore identify nothing."""
_ROLES = frozenset({"test", "tests", "spec"})


def triggers_of(event: SessionEvent) -> tuple[Trigger, ...]:
    """Return the triggers of an event, most exact first. Most events have none."""
    if event.kind is Kind.PROMPT:
        return _bounded(f"ticket:{name}" for name in tickets_of(event))
    if event.kind is not Kind.TOOL:
        return ()
    if path := missing_path(event):
        return at_missing(inside(path, event.cwd))
    if failure := failure_of(event):
        trial = trial_of(event, failure) if failure.fault in LAUNCHED else None
        return (*(of_launch(trial) if trial else ()), *of_failure(failure))
    return of_symbols(names_not_found(event))


def in_words(trigger: Trigger) -> str:
    """Describe the situation in which an episode with this trigger surfaces."""
    kind, _, value = trigger.partition(":")
    if kind == "way":
        return f"`{value.partition(':')[0]}` cannot be run in this way again"
    if kind == "fails":
        program = value.partition(":")[0].partition(" ")[0]
        return f"{'the shell' if program == 'shell' else f'`{program}`'} reports this error again"
    return _SITUATIONS.get(kind, "{} is met").format(value)


def of_failure(failure: Failure) -> tuple[Trigger, ...]:
    """Return the trigger for a program's error."""
    return of_error(failure.speaker, failure.signature)


def of_error(speaker: str, signature: str) -> tuple[Trigger, ...]:
    """Return the trigger for an error with this signature, reported by `speaker`."""
    return (f"fails:{speaker[:60]}:{digest(signature)}",)


def of_launch(trial: Trial) -> tuple[Trigger, Trigger]:
    """Return the triggers for a launcher that cannot do a job: in a folder of this name, and in any
    folder."""
    key = f"{trial.launcher}\0{trial.job}"
    program = trial.launcher.rpartition(" ")[2].rpartition("/")[2][:60]
    return f"way:{program}:{digest(f'{key}\0{trial.name}')}", f"way:{program}:{digest(key)}"


def of_symbols(names: Iterable[str]) -> tuple[Trigger, ...]:
    """Return the triggers for searches that do not find these names."""
    return _bounded(f"symbol:{name}" for name in names)


def at_missing(path: str) -> tuple[Trigger, ...]:
    """Return the triggers for a file that is missing at `path`."""
    folder, name = _split(path)
    if not name:
        return ()
    above, _, parent = folder.rpartition("/")
    keys = [f"file:{parent}/{name}", f"below:{parent}/{name}", *_alone(name)]
    if name.partition(".")[0] not in (parent, _last(above)):
        keys.append(f"file:{_last(above)}/{name}")
    return _bounded(keys)


def of_place(path: str) -> tuple[Trigger, ...]:
    """Return the triggers that make the location of the file at `path` surface."""
    folder, name = _split(path)
    if not name:
        return ()
    above, _, parent = folder.rpartition("/")
    return _bounded([f"file:{parent}/{name}", f"below:{_last(above)}/{name}", *_alone(name)])


def _bounded(keys: Iterable[str]) -> tuple[Trigger, ...]:
    return tuple(dict.fromkeys(key for key in keys if len(key) <= MAX_TRIGGER_CHARS))


def _split(path: str) -> tuple[str, str]:
    """Return the folder and the name of a file. The name is "" if it identifies nothing."""
    folder, _, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not stem or {stem.partition(".")[0].lower(), name.lower()} & _FRAMEWORK:
        return folder, ""
    return folder, f"{stem}{_FAMILIES.get(dot + suffix, dot + suffix)}"


def _alone(name: str) -> tuple[str, ...]:
    """Return the trigger for a name without a folder, if the name is long or has several words."""
    words = [word for word in _WORDS.findall(name.rpartition(".")[0]) if word not in _ROLES]
    letters = sum(map(len, words))
    return (f"file:{name}",) if letters >= 12 or (len(words) > 1 and letters >= 8) else ()


def _last(folder: str) -> str:
    return folder.rpartition("/")[2]
