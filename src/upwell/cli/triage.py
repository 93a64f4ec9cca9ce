"""Shows items one at a time on a terminal and reads a key as the answer to each."""

import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import click

from upwell.cli.output import note, say
from upwell.ground.text.safe import visible

QUIT, UNDO, ALL = "q", "u", "a"
_ENDS = ("\x03", "\x04")
_ESCAPE = b"\x1b"


class TriageAnswer(StrEnum):
    """The answers, and the keys that give them."""

    KEEP = "k"
    EDIT = "e"
    DROP = "d"
    NEVER = "n"
    SKIP = "s"


WORDS = {
    TriageAnswer.KEEP: "keep",
    TriageAnswer.EDIT: "edit and keep",
    TriageAnswer.DROP: "drop",
    TriageAnswer.NEVER: "never again",
    ALL: "all of this kind",
    TriageAnswer.SKIP: "skip",
    UNDO: "undo",
    QUIT: "quit",
}


_OTHER_KEYS = {"y": TriageAnswer.KEEP}
"""Other keys that people press, with the answers they mean."""


@dataclass(frozen=True, slots=True)
class Card[T]:
    """An item with the `text`, the lines of `evidence` and the `kind` to show."""

    item: T
    kind: str
    text: str
    evidence: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TriageDecision[T]:
    """The answer to an item. `text` is the item's text after any edit."""

    item: T
    answer: TriageAnswer
    text: str


def has_terminal() -> bool:
    """True if there is a person to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def decisions[T](
    cards: Sequence[Card[T]], edit: Callable[[str], str], read_key: Callable[[], str] | None = None
) -> Iterator[Sequence[TriageDecision[T]]]:
    """Ask about the cards one by one. An answer can be undone until the next one is given, so its
    decisions are yielded only then, or when the terminal is closed. If the process is killed with
    SIGKILL, at most the last answer is lost, and the next run asks about its items again. `edit()`
    lets the user change a text."""
    key = read_key or _key
    _quit_at_hangup()
    waiting, earlier = list(cards), None
    latest: Sequence[TriageDecision[T]] = ()
    _say_keys()
    while True:
        if waiting:
            card, number = waiting[0], len(cards) - len(waiting) + 1
            say(f"\n{number} of {len(cards)}: {card.kind}")
            say(f"  {card.text}")
            for line in card.evidence:
                say(f"    {line}")
            while (pressed := _pressed(key)) not in WORDS:
                _say_keys()
        else:
            say("That was the last one. [u] undo, [q] quit")
            pressed = _pressed(key)
        if pressed == QUIT:
            break
        if pressed == UNDO:
            if earlier is None:
                say("there is nothing to undo")
            else:
                waiting, earlier, latest = earlier, None, ()
            continue
        answered = _answered(pressed, waiting, edit, key) if waiting else ()
        if answered:
            yield latest
            done = {id(decision.item) for decision in answered}
            earlier, latest = waiting, answered
            waiting = [card for card in waiting if id(card.item) not in done]
    yield latest


def _answered[T](
    pressed: str,
    waiting: Sequence[Card[T]],
    edit: Callable[[str], str],
    key: Callable[[], str],
) -> Sequence[TriageDecision[T]]:
    """The decisions for a pressed key; () to ask again."""
    card = waiting[0]
    if pressed == ALL:
        return _all_of_kind(waiting, key)
    if pressed == TriageAnswer.EDIT:
        text = edit(card.text)
        return [TriageDecision(card.item, TriageAnswer.KEEP, text)] if text else ()
    if pressed == TriageAnswer.NEVER:
        say(f"  never again: {card.text} ({UNDO} takes it back)")
    else:
        say(f"  {WORDS[TriageAnswer(pressed)]}")
    return [TriageDecision(card.item, TriageAnswer(pressed), card.text)]


def _all_of_kind[T](
    waiting: Sequence[Card[T]], key: Callable[[], str]
) -> Sequence[TriageDecision[T]]:
    same = [card for card in waiting if card.kind == waiting[0].kind]
    say(f"  all {len(same)} of the kind {waiting[0].kind!r}: [k] keep, [d] drop, [n] never again,")
    say("  [s] skip; any other key asks about each")
    pressed = _pressed(key)
    if pressed not in list(TriageAnswer) or pressed == TriageAnswer.EDIT:
        return ()
    undoing = f" ({UNDO} takes them back)" if pressed == TriageAnswer.NEVER else ""
    say(f"  {WORDS[TriageAnswer(pressed)]}: {len(same)}{undoing}")
    return [TriageDecision(card.item, TriageAnswer(pressed), card.text) for card in same]


def _say_keys() -> None:
    say(", ".join(f"[{letter}] {word}" for letter, word in WORDS.items()))


def _pressed(key: Callable[[], str]) -> str:
    try:
        pressed = key().lower()
    except (KeyboardInterrupt, EOFError, OSError):  # OSError: the terminal is gone
        return QUIT
    return _OTHER_KEYS.get(pressed, pressed)


def _quit_at_hangup() -> None:
    """Make a closed terminal, or `kill`, end the questions like the key for quitting, so that the
    latest answer is kept."""

    def quit_now(*_: object) -> None:
        raise EOFError

    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, quit_now)


def _key() -> str:
    with _raw(sys.stdin.fileno()) as read:
        sys.stdout.write("? ")
        sys.stdout.flush()
        pressed = read()
    say(visible(pressed) if pressed.isprintable() else "")
    if pressed in _ENDS:
        raise EOFError
    return pressed


@contextmanager
def _raw(terminal: int) -> Iterator[Callable[[], str]]:
    """Yields a function that reads one key. Unlike `click.getchar`, the function does not lose keys
    that are typed ahead."""
    try:
        import termios
        import tty
    except ImportError:
        yield click.getchar
        return
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal, termios.TCSADRAIN)
        yield lambda: _read_key(terminal)
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _read_key(terminal: int) -> str:
    first = os.read(terminal, 1)
    if first == _ESCAPE:
        # An arrow key sends ESC and letters; the letters are not answers.
        while select.select([terminal], [], [], 0)[0] and os.read(terminal, 64):
            pass
    return first.decode("ascii", "replace") or _ENDS[-1]


def edited(text: str, environment: Mapping[str, str]) -> str:
    """Let the user edit a text in $VISUAL or $EDITOR or, without an editor, on one line. Returns ""
    if the user gives up.
    """
    editor = environment.get("VISUAL") or environment.get("EDITOR")
    changed = _in_editor(text, editor) if editor else _on_line(text)
    return " ".join(changed.split()) if "\n" not in text else changed.strip()


def _in_editor(text: str, editor: str) -> str:
    descriptor, name = tempfile.mkstemp(prefix="upwell-", suffix=".txt")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        subprocess.run([*shlex.split(editor), name], check=True)
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        note(f"upwell: {editor!r} failed: {error}; set $EDITOR to another program")
        return ""
    finally:
        os.unlink(name)


def _on_line(text: str) -> str:
    with suppress(ImportError):
        import readline

        readline.set_startup_hook(lambda: readline.insert_text(text))
    try:
        return input("  text: ")
    except (KeyboardInterrupt, EOFError):
        return ""
    finally:
        with suppress(ImportError):
            import readline

            readline.set_startup_hook(None)
