"""A team's memories: what is shared, the snapshot on each machine, and access through a gateway."""
