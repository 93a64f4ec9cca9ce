"""Floor 3: the one pipeline behind every door, from a cue to a surfacing or a skip."""
