"""JSON Lines: one document a line, read as the items of one array."""

from upwell.compress.json.large import shift
from upwell.compress.json.tree import ARRAY, Node, parse


def parse_lines(text: str) -> Node | None:
    """An array node over all lines of `text`, blank ones skipped; None if a line is not JSON."""
    root = Node(ARRAY, "", 0, len(text), None)
    at = 0
    for line in text.split("\n"):
        if line.strip():
            node = parse(line)
            if node is None:
                return None
            shift(node, at)
            node.parent = root
            root.items.append(node)
        at += len(line) + 1
    return root if root.items else None
