"""Copy ratings and thresholds from one store to another. A repeated copy adds only what is new."""

from collections import defaultdict

from upwell.learn.feedback import LearningStore


async def copy_ratings(source: LearningStore, target: LearningStore) -> int:
    """Copy the ratings that `target` lacks, and the thresholds that changed last in `source`.
    Returns the number of ratings.

    Raises:
        StoreError: a store failed; the next run continues.
    """
    present = {(rating.surfacing, rating.memory) for rating in await target.valid()}
    missing = [
        rating
        for rating in await source.valid()
        if (rating.surfacing, rating.memory) not in present
    ]
    if missing:
        await target.add(missing)
    known = await target.shifts()
    moved: dict[float, dict[str, float]] = defaultdict(dict)
    for tool, (shift, at) in (await source.shifts()).items():
        if tool not in known or known[tool][1] < at:
            moved[at][tool] = shift
    for at, shifts in moved.items():
        await target.shift(shifts, at)
    return len(missing)
