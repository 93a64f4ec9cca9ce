"""Merge two orders of preference: units that answer the question, and units that matter in any
case.
"""

from collections.abc import Mapping, Sequence


def order(
    relevances: Mapping[int, float],
    notable: Sequence[int],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> list[int]:
    """Order unit numbers by when to select them.

    `relevances` maps units to how well they answer the question; `notable` lists units that
    matter without a question, best first; `costs` (in characters) holds a number for every unit.
    The relevant units get `share` (0..1) of the budget, the notable ones the rest. Units whose turn
    comes after `limit` characters are left out.
    """
    answers = sorted(relevances, key=lambda unit: (-relevances[unit], unit))
    return in_parallel(answers, notable, costs, share, limit)


def in_parallel(
    first: Sequence[int],
    second: Sequence[int],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> list[int]:
    """Merge two lists as if each were spent on in parallel: `first` gets `share` until one of them
    is exhausted, and the other gets everything from then on."""
    if not first or share <= 0.0:
        first, share = (), 0.0
    first_cost, second_cost = (sum([costs[unit] for unit in units]) for units in (first, second))
    turns: dict[int, float] = {}
    _schedule(turns, first, costs, share, second_cost, limit)
    _schedule(turns, second, costs, 1.0 - share, first_cost, limit)
    return sorted(turns, key=lambda unit: (turns[unit], unit))


def _schedule(
    turns: dict[int, float],
    units: Sequence[int],
    costs: Sequence[float],
    share: float,
    other_cost: float,
    limit: float,
) -> None:
    """Record in `turns` how much has been spent in all when each unit is reached.

    This list gets `share` of the budget until the other list, which costs `other_cost`, is
    exhausted.
    """
    spent = 0.0
    for unit in units:
        spent += costs[unit]
        moment = spent / share if share > 0.0 else spent + other_cost
        if moment - spent > other_cost:
            moment = spent + other_cost
        if moment > limit and turns:
            return
        if moment < turns.get(unit, moment + 1.0):
            turns[unit] = moment
