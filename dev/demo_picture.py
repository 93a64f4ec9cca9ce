"""Draw docs/pictures/demo.svg: the output of `upwell demo`, line by line, as an animated picture.

Run by `make pictures`. The SVG has no script; readers who ask for less motion see the last lines.
"""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "demo.svg"
COLUMNS, ROWS = 100, 30
LINE, CHARACTER, MARGIN = 18, 7.83, 16
"""Height of a line, width of a character at 13 px, and the space around the text, in pixels."""
PAUSES = {"$": 0.7, "step": 1.2, "": 0.12}
"""Seconds before a line appears, by its style."""
AT_THE_END = 6.0
COLOURS = {
    "$": "#7ee2c1",
    "step": "#ffffff",
    "memory": "#f5c26b",
    "notice": "#8ab4f8",
    "": "#c5cdd3",
}


def style_of(line: str) -> str:
    """The style of a line of the demo: a command, a step, a memory, a notice, or plain text."""
    if line.startswith("$ "):
        return "$"
    if line[:1].isdigit() or line.startswith(("Why", "Before", "What")):
        return "step"
    if "upwell://memory/" in line or "<upwell-memories" in line or "</upwell" in line:
        return "memory"
    return "notice" if "[upwell]" in line else ""


def lines_of(output: str) -> Iterator[tuple[str, str]]:
    """Each line of the picture with its style; a long line of the demo becomes several."""
    for line in output.rstrip().splitlines():
        style = style_of(line)
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        for part in textwrap.wrap(line, COLUMNS, subsequent_indent=indent) or [""]:
            yield part, style


def picture(output: str) -> str:
    """The SVG. Lines appear one after the other, and the text scrolls when it is full."""
    lines = list(lines_of(output))
    starts, now = [], 0.4
    for text, style in lines:
        now += PAUSES.get(style, PAUSES[""]) if text else PAUSES[""]
        starts.append(now)
    total = now + AT_THE_END
    height, width = ROWS * LINE + 2 * MARGIN, round(COLUMNS * CHARACTER) + 2 * MARGIN
    drawn, rules, steps = [], [], []
    for number, ((text, style), start) in enumerate(zip(lines, starts, strict=True)):
        share = 100 * start / total
        hidden, shown = f"0%,{share:.2f}%{{opacity:0}}", f"{share + 0.01:.2f}%,100%{{opacity:1}}"
        rules.append(f"@keyframes l{number}{{{hidden}{shown}}}")
        drawn.append(
            f'<text x="{MARGIN}" y="{MARGIN + (number + 1) * LINE - 5}" fill="{COLOURS[style]}" '
            f'style="animation-name:l{number}">{escape(text)}</text>'
        )
        if number >= ROWS:
            steps.append(f"{share:.2f}%{{transform:translateY(-{(number - ROWS + 1) * LINE}px)}}")
    end = max(0, len(lines) - ROWS) * LINE
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>upwell demo</title>
<style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}}
text,.all{{animation:{total:.1f}s step-end infinite}}
.all{{animation-name:scroll}}
@keyframes scroll{{0%{{transform:none}}{"".join(steps)}100%{{transform:translateY(-{end}px)}}}}
{"".join(rules)}
@media (prefers-reduced-motion:reduce){{
text,.all{{animation:none}}
.all{{transform:translateY(-{end}px)}}
}}
</style>
<clipPath id="page"><rect y="{MARGIN}" width="{width}" height="{ROWS * LINE}"/></clipPath>
<rect width="{width}" height="{height}" rx="8" fill="#14191d"/>
<g clip-path="url(#page)"><g class="all">
{chr(10).join(drawn)}
</g></g>
</svg>
"""


def main() -> int:
    done = subprocess.run(
        [sys.executable, "-m", "upwell", "demo"], capture_output=True, text=True, check=True
    )
    PICTURE.write_text(picture(done.stdout), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
