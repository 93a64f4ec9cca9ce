"""In which order a budget is spent on units: what the question asks for and what an agent needs
anyway, merged so that every budget is split between the two in the same proportion.

The order does not depend on the budget, and spending stops at the first unit that no longer
fits: so what a small budget keeps, a larger one keeps too.
"""

from collections.abc import Mapping, Sequence


def order(
    asked: Mapping[int, float],
    needed: Sequence[float],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> list[int]:
    """Unit numbers, those to be bought first in front.

    `asked` maps units to how well they answer the question, `needed` has the salience of every
    unit, `costs` what each costs (characters), `share` in 0..1 is the part of the money that
    goes to `asked`. Units that would be bought only beyond `limit` are left out.
    """
    due: dict[int, float] = {}
    if asked and share > 0.0:
        wanted = sorted(asked, key=lambda unit: (-asked[unit], unit))
        _schedule(due, wanted, costs, share, limit)
    else:
        share = 0.0
    rest = sorted(range(len(needed)), key=needed.__getitem__, reverse=True)
    _schedule(due, rest, costs, 1.0 - share, limit)
    return sorted(due, key=lambda unit: (due[unit], unit))


def _schedule(
    due: dict[int, float], units: Sequence[int], costs: Sequence[float], share: float, limit: float
) -> None:
    """Note for each unit when its turn comes, if this list gets `share` of every coin."""
    if share <= 0.0:
        return
    spent = 0.0
    for unit in units:
        spent += costs[unit]
        moment = spent / share
        if moment > limit and due:
            return
        if moment < due.get(unit, moment + 1.0):
            due[unit] = moment
