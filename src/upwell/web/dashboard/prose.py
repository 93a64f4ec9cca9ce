"""Turn Markdown from agents and users into safe HTML. Common markup is removed, code and bold text
become elements, and addresses are shown as text.

No part of the text can become an HTML element, because each piece is escaped before it is put
between our own tags.
"""

import re

from markupsafe import Markup, escape

from upwell.ground.text.invisible import visible

_FENCE = re.compile(r"^ {0,9}(?:```|~~~)")
_HEADING = re.compile(r"^ {0,3}#{1,6} {1,9}(.+)$")
_BULLET = re.compile(r"^( {0,40})[-*+] (?=.)")
_QUOTE = re.compile(r"^ {0,3}> ?")
_BACKTICKS = re.compile(r"`([^`]++)`")
_INLINE = re.compile(
    r"`([^`\n]{1,2000}+)`"
    # A path pattern such as src/**/test is not bold text.
    r"|(?<![\w/*])\*\*(?=[^\s*/])([^*\n]{1,500}+)(?<=\S)\*\*(?![\w/*])"
    r"|!?\[([^\[\]\n]{1,300}+)\]\(([^()\s]{1,500}+)\)"
)


def prose(text: str) -> Markup:
    """Return the escaped text without Markdown's most common markup, with elements for code and
    bold text."""
    blocks: list[Markup] = []
    fenced: list[str] | None = None
    for line in visible(text).split("\n"):
        if _FENCE.match(line):
            if fenced is not None:
                blocks.append(_code(fenced))
            fenced = [] if fenced is None else None
        elif fenced is not None:
            fenced.append(line)
        elif line.strip() or (blocks and blocks[-1]):
            blocks.append(_line(line) if line.strip() else Markup(""))
    if fenced:
        blocks.append(_code(fenced))
    return Markup("\n").join(blocks)


def plain(text: str) -> str:
    """Return the text on one line without Markdown's most common markup, for titles. The result is
    not escaped."""
    return prose(text).striptags()


def unbroken(command: str) -> Markup:
    """Return the escaped command as HTML that browsers wrap only between words. Without this, they
    also break a word such as `--apply` after its hyphens."""
    words = visible(command).split(" ")
    return Markup(" ").join(Markup('<span class="word">{}</span>').format(word) for word in words)


def commands(text: str) -> Markup:
    """Return the escaped text, with the parts in backticks as commands."""
    pieces = _BACKTICKS.split(visible(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(unbroken(piece)) if number % 2 else escape(piece)
        for number, piece in enumerate(pieces)
    )


def _code(lines: list[str]) -> Markup:
    return Markup("<code>{}</code>").format("\n".join(lines))


def _line(line: str) -> Markup:
    line = _QUOTE.sub("", line)
    if heading := _HEADING.match(line):
        return Markup("<b>{}</b>").format(heading[1].strip(" #").replace("**", "").replace("`", ""))
    return _spans(_BULLET.sub(r"\1• ", line))


def _spans(line: str) -> Markup:
    pieces: list[Markup] = []
    end = 0
    for match in _INLINE.finditer(line):
        pieces += [escape(line[end : match.start()]), _inline(match)]
        end = match.end()
    return Markup("").join([*pieces, escape(line[end:])])


def _inline(match: re.Match[str]) -> Markup:
    code, bold, label, address = match.groups()
    if code is not None:
        return Markup("<code>{}</code>").format(code)
    if bold is not None:
        # Bold text contains no asterisk, so the recursion ends after one level.
        return Markup("<b>{}</b>").format(_spans(bold))
    return escape(f"{label.replace('`', '')} ({address})")
