"""A team's memories: what is shared, the copy on each machine, and access through a gateway."""
