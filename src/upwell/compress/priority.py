"""Merge two orders of preference into one: what answers the question, and what matters anyway."""

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
    Two lists are merged as if each were spent on in parallel: the relevant units get `share` (0..1)
    of the budget, the notable ones the rest. Units whose turn comes after `limit` characters are
    left out.
    """
    turns: dict[int, float] = {}
    if relevances and share > 0.0:
        ordered = sorted(relevances, key=lambda unit: (-relevances[unit], unit))
        schedule(turns, ordered, costs, share, limit)
    else:
        share = 0.0
    schedule(turns, notable, costs, 1.0 - share, limit)
    return sorted(turns, key=lambda unit: (turns[unit], unit))


def schedule(
    turns: dict[int, float],
    units: Sequence[int],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> None:
    """Record in `turns` how much has been spent in all when each unit is reached, given that this
    list gets `share` of the budget."""
    if share <= 0.0:
        return
    spent = 0.0
    for unit in units:
        spent += costs[unit]
        moment = spent / share
        if moment > limit and turns:
            return
        if moment < turns.get(unit, moment + 1.0):
            turns[unit] = moment
