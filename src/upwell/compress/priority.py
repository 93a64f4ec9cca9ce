"""Merge two orders of preference: units that answer the question, and units that matter anyway."""

from collections.abc import Mapping, Sequence


def order(
    relevances: Mapping[int, float],
    notable: Sequence[int],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> list[int]:
    """Return the numbers of units in the order in which to select them.

    `relevances` contains the units that answer the question, with their scores. `notable` lists the
    units that matter without a question, best first. `costs` gives the cost of each unit in
    characters. The relevant units get `share` (0..1) of the budget, and the notable units get the
    rest. Units whose turn comes after `limit` characters are left out.
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
    """Merge two lists as if a budget were spent on both at the same time. `first` gets `share` of
    the budget, and `second` gets the rest. When one list is exhausted, the other gets everything.
    """
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
    """For each unit of one list, record in `turns` how much has been spent on both lists once the
    unit is selected.

    This list gets `share` of the budget until the other list, which costs `other_cost`, is
    exhausted.
    """
    spent = 0.0
    for unit in units:
        spent += costs[unit]
        total = spent / share if share > 0.0 else spent + other_cost
        if total - spent > other_cost:
            total = spent + other_cost
        if total > limit and turns:
            return
        if total < turns.get(unit, total + 1.0):
            turns[unit] = total
