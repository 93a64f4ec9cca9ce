"""What agents say was missing from shortened results, in their own words.

Nothing is computed from it: whoever sets a tool's budget or strategy reads it in `upwell tune`.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from upwell.ground.redact import redact
from upwell.ground.shelf import Shelf
from upwell.ground.text.safe import clip
from upwell.learn.ratios import KEPT_SECONDS, Report

SHELF_KIND = "compression_missing"
MAX_CHARS = 300
SHOWN = 5
"""Of one tool, the newest."""
_READ_CHARS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What was missing from a result of `tool`, said `at` epoch seconds."""

    tool: str
    kind: str
    text: str
    at: float = 0.0


async def note(shelf: Shelf, tool: str, report: Report, text: str) -> None:
    """Keep one such remark for 30 days, one line without secrets; the same one once."""
    line = clip(" ".join(redact(text[:_READ_CHARS])[0].split()), MAX_CHARS)
    if not line:
        return
    value = json.dumps(asdict(Missed(tool=tool, kind=str(report), text=line))).encode()
    key = hashlib.sha256(value).hexdigest()
    await shelf.put(SHELF_KIND, {key: value}, ttl_seconds=KEPT_SECONDS)


async def lately(shelf: Shelf) -> Mapping[str, Sequence[Missed]]:
    """The newest remarks by tool, the newest first."""
    found: defaultdict[str, list[Missed]] = defaultdict(list)
    for item in reversed(await shelf.scan(SHELF_KIND)):
        said = Missed(**{**json.loads(item.value), "at": item.created_at})
        if len(found[said.tool]) < SHOWN:
            found[said.tool].append(said)
    return found


async def forget(shelf: Shelf) -> int:
    """Forget them. Returns how many there were."""
    return await shelf.drop(SHELF_KIND)
