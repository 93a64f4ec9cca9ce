"""The structure of a text, lifted above its substance."""

from upwell.compress.units.base import Units

_STRUCTURE = 100.0
_FIRST_LINE = 50.0


def lift_structure(units: Units, *, first_lines: bool = False) -> None:
    """Raise every unit that others need (headings, signatures), and with `first_lines` the first
    unit under each, so that they are bought first where nobody asked."""
    heads = {need for needs in units.needs for need in needs}
    followed: set[int] = set()
    for unit in sorted(heads):
        if units.salience[unit] >= 0.0:
            units.salience[unit] += _STRUCTURE
    if not first_lines:
        return
    for unit, needs in enumerate(units.needs):
        if needs and unit not in heads and needs[-1] not in followed:
            followed.add(needs[-1])
            units.salience[unit] += _FIRST_LINE
